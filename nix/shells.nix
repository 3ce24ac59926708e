# Development shells and `nix run .#train`, from nixpkgs.
{ pkgs }:
let
  # Bazel keeps its own lock of everything else; these are the programs it starts from.
  tools = [
    pkgs.bazel_8
    pkgs.git
    pkgs.jdk21_headless
    pkgs.python311
  ];
  lint = [
    pkgs.mypy
    pkgs.pre-commit
    pkgs.ruff
    pkgs.yamllint
  ];
in
{
  cpu = pkgs.mkShell {
    name = "slime-cpu";
    packages = tools ++ lint;
  };

  # libcuda.so.1 belongs to the machine's driver and cannot come from here.
  cuda =
    stack:
    pkgs.mkShell {
      name = "slime-cuda";
      packages = tools ++ lint ++ stack.libraries ++ [ stack.python ] ++ stack.packages;
      shellHook = ''
        if ! [ -e /run/opengl-driver/lib/libcuda.so.1 ] && ! ldconfig -p 2>/dev/null | grep -q libcuda.so.1; then
          echo "slime: no libcuda.so.1 found: it comes with the machine's NVIDIA driver; add its folder to LD_LIBRARY_PATH" >&2
        fi
      '';
    };

  train = {
    type = "app";
    program = toString (
      pkgs.writeShellScript "slime-train" ''
        export PATH=${pkgs.lib.makeBinPath tools}:$PATH
        exec bazel run //slime:train -- "$@"
      ''
    );
  };
}
