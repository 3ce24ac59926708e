# What a Python program of this checkout makes, with Python's own modules only. Made without nixpkgs.
{ system }:
{
  name,
  # The files and folders of the checkout that it reads; it sees no others.
  wanted,
  # Runs it; what comes out does not depend on it.
  python,
  # Its words, from the folder that holds what is wanted.
  args,
}:
let
  root = toString ../.;
  hasPrefix = prefix: text: builtins.substring 0 (builtins.stringLength prefix) text == prefix;
  # A wanted file or folder, what lies in one, and the folders on the way there.
  isWanted =
    path:
    builtins.any (
      part: path == part || hasPrefix "${part}/" path || hasPrefix "${path}/" part
    ) (map (part: "${root}/${part}") wanted);
  source = builtins.path {
    name = "${name}-source";
    path = ../.;
    filter = path: _: isWanted path;
  };
in
derivation {
  inherit name system;
  builder = python;
  PYTHONPATH = "${source}";
  PYTHONDONTWRITEBYTECODE = "1";
  args = [ "-s" ] ++ args source;
}
