"""Examples that run as they are; each folder explains itself in its config.yaml."""
