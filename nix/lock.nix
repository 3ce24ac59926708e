# Reads a requirements lock: { name = { name, version, sha256 }; ... }.
#
# The same file feeds pip and Bazel. Every line has to be understood: one package, one version, one hash.
file:
let
  label = baseNameOf (toString file);
  joined = builtins.replaceStrings [ " \\\n" ] [ "" ] (builtins.readFile file);
  isPackage = line: builtins.isString line && line != "" && builtins.substring 0 1 line != "#";
  lines = builtins.filter isPackage (builtins.split "\n" joined);

  parse =
    line:
    let
      found = builtins.match "([a-z0-9.+-]+)==([^ ]+) +--hash=sha256:([0-9a-f]{64})" line;
      value = {
        name = builtins.elemAt found 0;
        version = builtins.elemAt found 1;
        sha256 = builtins.elemAt found 2;
      };
    in
    if found == null then
      throw "${label}: expected `name==version --hash=sha256:<64 hex digits>`, found `${line}`"
    else
      {
        inherit (value) name;
        inherit value;
      };

  parsed = map parse lines;
  packages = builtins.listToAttrs parsed;
  twice = builtins.filter (one: count one.name > 1) parsed;
  count = name: builtins.length (builtins.filter (one: one.name == name) parsed);
in
if builtins.length (builtins.attrNames packages) == builtins.length parsed then
  packages
else
  throw "${label}: ${(builtins.head twice).name} is locked twice"
