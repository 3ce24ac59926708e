"""Ray: where the processes of a run are placed, started, watched and ended."""
