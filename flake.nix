{
  description = "slime: reinforcement-learning post-training of language models";

  # An exact revision: what nixpkgs carries is compared with nix/pins.json (nix/stack.nix), so it moves on purpose only.
  inputs.nixpkgs.url = "github:NixOS/nixpkgs/e5bdc4a41d4c072fe1e3787eaa0320a384741d44";

  outputs =
    { self, nixpkgs }:
    let
      system = "x86_64-linux"; # the locks hold wheels of this platform only
      readJSON = file: builtins.fromJSON (builtins.readFile file);
      readLock = import ./nix/lock.nix;
      locks = {
        cpu = readLock ./requirements.lock.txt;
        cuda = readLock ./requirements.cuda.lock.txt;
        debs = readLock ./ci/image/base.deb.lock; # of the CPU image
      };
      pins = import ./nix/check_pins.nix { lock = locks.cuda; } (readJSON ./nix/pins.json);

      # Without nixpkgs: the machine's own shell and Python.
      host = import ./nix/host.nix { inherit system; };
      site = import ./nix/site.nix { inherit system; };
      image = import ./nix/image.nix { inherit system; };
      site-cpu = site {
        name = "slime-site-cpu";
        lock = locks.cpu;
      };

      # With nixpkgs, which is not fetched until one of these is asked for.
      pkgs = import nixpkgs { inherit system; };
      stack = import ./nix/stack.nix { inherit pins system nixpkgs; };
      shells = import ./nix/shells.nix { inherit pkgs; };
      site-cuda = site {
        name = "slime-site-cuda";
        lock = locks.cuda;
        python = "${stack.python}/bin/python3";
      };
    in
    {
      lib = { inherit pins locks; };

      checks.${system}.pins = host.write "slime-pins.json" (builtins.toJSON pins);

      packages.${system} = {
        inherit site-cpu site-cuda;
        image-cpu = image {
          name = "slime-cpu";
          inherit locks;
        };
        image-small = image {
          # As in ci/image/BUILD.bazel: what tests build.
          name = "slime-small";
          inherit locks;
          base = false;
          packages = [
            "orjson"
            "packaging"
            "pyyaml"
          ];
          files = [
            "slime/__init__.py"
            "slime/published_paths.py"
          ];
        };
        image-cuda = import ./nix/image_cuda.nix { inherit pkgs stack site-cuda; };
      };

      devShells.${system} = {
        default = shells.cpu;
        cpu = shells.cpu;
        cuda = shells.cuda stack;
        host = host.shell;
      };

      apps.${system}.train = shells.train;

      formatter.${system} = pkgs.nixfmt;
    };
}
