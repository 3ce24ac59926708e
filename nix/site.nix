# Packages of a lock, unpacked into one folder, the way Bazel's store unpacks them (third_party/pypi/store.py).
#
# No address is known here: `python3 nix/add_wheels.py` lets pip bring the wheels and adds them to the Nix store,
# which takes a file for a wheel only if its sha256 is the locked one.
{ system }:
{
  name,
  lock,
  python ? "/usr/bin/python3",
  # Which of the lock's packages.
  packages ? builtins.attrNames lock,
}:
import ./program.nix { inherit system; } {
  inherit name python;
  wanted = [
    "third_party/pypi/store.py"
    "nix/site.py"
  ];
  args =
    source:
    [
      "${source}/nix/site.py"
      (placeholder "out")
    ]
    ++ import ./wheels.nix { inherit system; } { inherit name lock packages; };
}
