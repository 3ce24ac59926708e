# The CUDA image, from nixpkgs' own writer: evaluated, never built here.
{ pkgs, stack, site-cuda }:
pkgs.dockerTools.buildLayeredImage {
  name = "slime-cuda";
  contents = [
    stack.python
    site-cuda
  ]
  ++ stack.libraries;
  config.Env = [ "PYTHONPATH=${site-cuda}" ];
}
