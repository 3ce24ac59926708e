"""Start runs from Python scripts and tests."""
