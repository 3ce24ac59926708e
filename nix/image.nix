# An image of slime, an OCI layout, and its SBOM: ci/image/build.py, as Bazel runs it for //ci/image.
{ system }:
{
  name,
  locks,
  # Which of the CPU lock's packages.
  packages ? builtins.attrNames locks.cpu,
  # With Debian below them.
  base ? true,
  # Only these files of the checkout; null for all that belongs into the image.
  files ? null,
  python ? "/usr/bin/python3",
}:
let
  deb = import ./locked_file.nix { inherit system; } {
    ending = ".deb";
    script = "add_debs.py";
  };
  repeated = option: map (value: "${option}=${value}");
in
import ./program.nix { inherit system; } {
  inherit name python;
  # The writer, the locks it reads, and what it puts into the last layer.
  wanted = [
    "ci/image"
    "third_party/pypi/store.py"
    "requirements.lock.txt"
    "requirements.cuda.lock.txt"
    "nix/pins.json"
    "examples/__init__.py"
    "examples/quickstart"
    "slime"
  ];
  args =
    source:
    [
      "-m"
      "ci.image.build"
      "--title=${name}"
      "--requirements=${source}/requirements.lock.txt"
      "--source=${source}"
      "--out=${placeholder "out"}"
      "--wheels"
    ]
    ++ import ./wheels.nix { inherit system; } {
      inherit name packages;
      lock = locks.cpu;
    }
    ++ repeated "--package" packages
    ++ (
      if base then
        [
          "--deb-lock=${source}/ci/image/base.deb.lock"
          "--debs"
        ]
        ++ map deb (builtins.attrValues locks.debs)
      else
        [ ]
    )
    ++ (if files == null then [ ] else repeated "--source-file" files);
}
