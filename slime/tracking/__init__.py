"""What a run tells its user: metrics, the live progress line and the closing summary."""
