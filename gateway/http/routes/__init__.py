"""Routes of the gateway, one file for each protocol."""
