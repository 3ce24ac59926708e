{
  description = "A stand-in for nixpkgs, for evaluation only: nothing in it can be built (see default.nix)";
  outputs = { self }: { };
}
