"""What the gateway serves."""
