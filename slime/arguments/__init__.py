"""Every option of slime: flags, YAML files, validation, resolution and the plan of a run."""
