# Compares nix/pins.json with the CUDA lock and returns the pins. Needs no nixpkgs (that part is nix/stack.nix).
{ lock }:
pins:
let
  # What a pin says (version, and sha256 if it comes as a wheel) is what the lock holds.
  same =
    package: pin:
    let
      locked = lock.${package} or (throw "nix/pins.json: ${package} is not in requirements.cuda.lock.txt");
      compare =
        field:
        if pin.${field} == locked.${field} then
          true
        else
          throw "${package}: ${field} differs: nix/pins.json has ${pin.${field}}, requirements.cuda.lock.txt has ${
            locked.${field}
          }";
    in
    builtins.all compare (builtins.filter (field: pin ? ${field}) [ "version" "sha256" ]);

  # Of what nixpkgs brings, the lock holds some packages too.
  names = builtins.attrNames pins.packages;
  isLocked = name: pins.packages.${name}.from == "wheel" || lock ? ${name};
in
assert builtins.all (name: same name pins.packages.${name}) (builtins.filter isLocked names);
assert same "nvidia-cuda-runtime" { version = pins.cuda.runtime; };
pins
