# The CUDA stack as nixpkgs carries it, and the proof that it is what nix/pins.json says.
#
# Each package is taken ready-made; a nixpkgs that has moved on fails here, with both values.
{ pins, system, nixpkgs }:
let
  base = import nixpkgs {
    inherit system;
    config = {
      allowUnfree = true; # CUDA
      cudaSupport = true;
    };
  };
  cuda = base.${pins.cuda.attribute};
  pkgs = cuda.pkgs; # nixpkgs with this CUDA as its default
  python = pkgs.${pins.python.attribute};

  same =
    what: pinned: carried:
    if pinned == carried then true else throw "${what} differs: nix/pins.json has ${pinned}, nixpkgs has ${carried}";

  fromNixpkgs = builtins.filter (name: pins.packages.${name}.from == "nixpkgs") (builtins.attrNames pins.packages);

  # Of a package that nixpkgs brings: its version, and the source that it is built from. The hash stands for the
  # revision, which nixpkgs may call by a tag.
  samePackage =
    name:
    let
      pin = pins.packages.${name};
      carried = python.pkgs.${name};
    in
    same "${name}: version" pin.version carried.version
    && same "${name}: hash of the source" pin.hash carried.src.outputHash;
in
assert same "CUDA: version" pins.cuda.version cuda.cudaMajorMinorVersion;
assert same "CUDA: runtime" pins.cuda.runtime cuda.cuda_cudart.version;
assert same "Python: version" pins.python.version python.pythonVersion;
assert builtins.all samePackage fromNixpkgs;
{
  inherit python;
  packages = map (name: python.pkgs.${name}) fromNixpkgs;
  libraries = [
    cuda.cuda_cudart
    cuda.cuda_nvcc
    cuda.nccl
  ];
}
