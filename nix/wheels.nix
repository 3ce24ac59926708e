# The wheels of some packages of a lock, for the output `name`.
{ system }:
{
  name,
  lock,
  packages,
}:
let
  wheel = import ./locked_file.nix { inherit system; } {
    ending = ".whl";
    script = "add_wheels.py";
  };
in
map (package: wheel (lock.${package} or (throw "${name}: ${package} is not in the lock"))) packages
