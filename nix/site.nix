# Packages of a lock, unpacked into one folder, the way Bazel's store unpacks them (third_party/pypi/store.py).
#
# No address is known here: `python3 nix/add_wheels.py` lets pip bring the wheels and adds them to the Nix store,
# which takes a file for a wheel only if its sha256 is the locked one.
{ system }:
{
  name,
  lock,
  # Runs the unpacking; what comes out does not depend on it.
  python ? "/usr/bin/python3",
  # Which of the lock's packages.
  packages ? builtins.attrNames lock,
}:
let
  locked = package: lock.${package} or (throw "${name}: ${package} is not in the lock");

  wheel = import ./locked_file.nix { inherit system; } {
    ending = ".whl";
    script = "add_wheels.py";
  };

  wanted = [
    "third_party"
    "third_party/pypi"
    "third_party/pypi/store.py"
    "nix"
    "nix/site.py"
  ];
  root = toString ../.;
  source = builtins.path {
    name = "slime-site-source";
    path = ../.;
    filter = path: _: builtins.any (part: path == "${root}/${part}") wanted;
  };
in
derivation {
  inherit name system;
  builder = python;
  PYTHONPATH = "${source}";
  PYTHONDONTWRITEBYTECODE = "1";
  args = [
    "-s"
    "${source}/nix/site.py"
    (placeholder "out")
  ]
  ++ map (package: wheel (locked package)) packages;
}
