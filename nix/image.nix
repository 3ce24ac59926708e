# The CPU image, an OCI layout. Made without nixpkgs.
{ system, locks, site-cpu }:
site-cpu
