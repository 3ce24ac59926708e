# Derivations that need nothing but the machine's own /bin/sh: for machines without nixpkgs.
{ system }:
{
  # A file of this name and content.
  write =
    name: text:
    derivation {
      inherit name system text;
      builder = "/bin/sh";
      args = [
        "-c"
        ''printf '%s\n' "$text" > "$out"''
      ];
    };

  # `nix develop .#host`: the machine's own tools and nothing of the caller's environment.
  shell = derivation {
    name = "slime-host";
    inherit system;
    outputs = [ "out" ]; # `nix develop` wants it said
    builder = "/bin/bash";
    args = [
      "-c"
      "echo > $out"
    ];
    PATH = "/usr/local/bin:/usr/bin:/bin";
  };
}
