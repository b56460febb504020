"""What applications tell of their requests."""
