# The CUDA image, by nixpkgs' own writer: evaluated in CI, built only where there are nixpkgs and the CUDA wheels.
{
  pkgs,
  stack,
  site-cuda,
}:
let
  slime = builtins.path {
    name = "slime";
    path = ../.;
    filter = path: _: builtins.match ".*/slime(/.*)?" (dropRoot path) != null;
  };
  dropRoot = path: builtins.replaceStrings [ (toString ../.) ] [ "" ] path;

  # The wheels come first: their torch is the one that is imported.
  pythonPath = [
    slime
    site-cuda
  ]
  ++ map (package: "${package}/${stack.python.sitePackages}") stack.packages;
in
pkgs.dockerTools.buildLayeredImage {
  name = "slime-cuda";
  contents = [
    pkgs.bashInteractive
    pkgs.coreutils
    stack.python
  ];
  config = {
    Entrypoint = [
      "${stack.python}/bin/python3"
      "-m"
      "slime.train"
    ];
    Env = [
      "PYTHONPATH=${builtins.concatStringsSep ":" pythonPath}"
      "NVIDIA_DRIVER_CAPABILITIES=compute,utility" # what the container runtime mounts of the driver
      "NVIDIA_VISIBLE_DEVICES=all"
    ];
  };
}
