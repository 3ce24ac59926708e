# An image of slime, an OCI layout, and its SBOM: ci/image/build.py, as Bazel runs it for //ci/image. Made without nixpkgs.
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
  # Runs the writer; what comes out does not depend on it.
  python ? "/usr/bin/python3",
}:
let
  file = import ./locked_file.nix { inherit system; };
  wheel = file {
    ending = ".whl";
    script = "add_wheels.py";
  };
  deb = file {
    ending = ".deb";
    script = "add_debs.py";
  };
  locked = package: locks.cpu.${package} or (throw "${name}: ${package} is not in the lock");
  wheels = map (package: wheel (locked package)) packages;
  debs = map deb (builtins.attrValues locks.debs);

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
  root = toString ../.;
  hasPrefix = prefix: text: builtins.substring 0 (builtins.stringLength prefix) text == prefix;
  # A wanted file or folder, what lies in one, and the folders on the way there.
  isWanted =
    path:
    builtins.any (
      part: path == part || hasPrefix "${part}/" path || hasPrefix "${path}/" part
    ) (map (part: "${root}/${part}") wanted);
  source = builtins.path {
    name = "slime-image-source";
    path = ../.;
    filter = path: _: isWanted path;
  };
  repeated = option: map (value: "${option}=${value}");
in
derivation {
  inherit name system;
  builder = python;
  PYTHONPATH = "${source}";
  PYTHONDONTWRITEBYTECODE = "1";
  args = [
    "-s"
    "-m"
    "ci.image.build"
    "--title=${name}"
    "--requirements=${source}/requirements.lock.txt"
    "--source=${source}"
    "--out=${placeholder "out"}"
    "--wheels"
  ]
  ++ wheels
  ++ repeated "--package" packages
  ++ (if base then [ "--deb-lock=${source}/ci/image/base.deb.lock" "--debs" ] ++ debs else [ ])
  ++ (if files == null then [ ] else repeated "--source-file" files);
}
