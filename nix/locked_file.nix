# A file of a lock, from the Nix store, which holds it only if its sha256 is the locked one.
#
# No address is known here: nix/add_wheels.py lets pip bring the files, nix/add_debs.py apt.
{ system }:
{
  ending,
  # Which of the two.
  script,
}:
{
  name,
  version,
  sha256,
}:
derivation {
  # A store path has no `:` or `~`, which Debian's versions have.
  name = builtins.replaceStrings [ ":" "~" ] [ "-" "-" ] "${name}-${version}${ending}";
  inherit system;
  builder = "/bin/sh";
  args = [
    "-c"
    ''
      echo "${name}==${version} (sha256 ${sha256}) is not in the Nix store: run python3 nix/${script}" >&2
      exit 1
    ''
  ];
  outputHashMode = "flat";
  outputHashAlgo = "sha256";
  outputHash = sha256;
  preferLocalBuild = true;
}
