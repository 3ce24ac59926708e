# FOR EVALUATION ONLY. Stands in for nixpkgs where there is none (no network): it has the attributes that the flake
# asks for, and of the CUDA stack the versions and source hashes that nixpkgs was read to carry. So
#
#     nix flake check . --no-build --override-input nixpkgs path:./nix/stub --no-write-lock-file
#
# proves that the flake's structure and pins hold together, NOT that the real nixpkgs has these attributes.
{ system, config ? { } }:
let
  # Refuses to be built. `inputs` are evaluated with it, as those of a real package are.
  package =
    name: inputs: attributes:
    derivation {
      inherit name system inputs;
      builder = "/bin/sh";
      args = [
        "-c"
        "echo 'nix/stub is for evaluation only' >&2; exit 1"
      ];
      outputs = [ "out" ];
    }
    // {
      meta = { };
    }
    // attributes;
  plain = name: package name [ ] { };
  fromSource =
    name: version: hash:
    package "${name}-${version}" [ ] {
      inherit version;
      src.outputHash = hash;
    };

  cuda = {
    inherit pkgs;
    cudaMajorMinorVersion = "13.0";
    cuda_cudart = package "cuda_cudart" [ ] { version = "13.0.96"; };
    cuda_nvcc = plain "cuda_nvcc";
    nccl = plain "nccl";
  };

  pythonPackages = {
    deep-ep = fromSource "deep-ep" "1.2.1" "sha256-xURR3uBAwKjDTNEG9p/vRRhH4Ldiz/u6kD/a+DPn5/Q=";
    torch-memory-saver =
      fromSource "torch-memory-saver" "0.0.9.post1"
        "sha256-xYkHhfCj3cOzAK5pmWCDfRw5FL8BzBkeUaDnqVlmSiY=";
    transformer-engine =
      fromSource "transformer-engine" "2.18"
        "sha256-NKky2b5grlfVdWsPf6HO4QZAvVuibCKvmfU0DxUIfvs=";
  };

  pkgs = {
    bashInteractive = plain "bash";
    bazel_8 = plain "bazel-8";
    coreutils = plain "coreutils";
    cudaPackages_13_0 = cuda;
    git = plain "git";
    jdk21_headless = plain "jdk";
    mypy = plain "mypy";
    nixfmt = plain "nixfmt";
    pre-commit = plain "pre-commit";
    python311 = plain "python3-3.11";
    python312 = package "python3-3.12" [ ] {
      pythonVersion = "3.12";
      sitePackages = "lib/python3.12/site-packages";
      pkgs = pythonPackages;
    };
    ruff = plain "ruff";
    yamllint = plain "yamllint";

    dockerTools.buildLayeredImage = image: package image.name (image.contents ++ image.config.Env ++ image.config.Entrypoint) { };
    lib.makeBinPath = packages: builtins.concatStringsSep ":" (map (one: "${one}/bin") packages);
    mkShell = shell: package shell.name shell.packages { };
    writeShellScript = name: text: builtins.toFile name (builtins.unsafeDiscardStringContext text);
  };
in
pkgs
