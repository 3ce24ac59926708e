# Compares nix/pins.json with the locks and returns the pins. Needs no nixpkgs (that part is nix/stack.nix).
{ locks }:
pins:
let
  # A pin that comes as a wheel: the lock must hold this version and this file.
  check =
    name: pin:
    let
      locked = locks.cuda.${name} or (throw "nix/pins.json: ${name} is not in requirements.cuda.lock.txt");
      compare =
        field:
        if pin.${field} == locked.${field} then
          true
        else
          throw "${name}: ${field} differs: nix/pins.json has ${pin.${field}}, requirements.cuda.lock.txt has ${locked.${field}}";
    in
    builtins.all compare [
      "version"
      "sha256"
    ];
  names = builtins.attrNames pins.packages;
  wheels = builtins.filter (name: pins.packages.${name} ? sha256) names;
in
assert builtins.all (name: check name pins.packages.${name}) wheels;
pins
