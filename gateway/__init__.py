"""The gateway: takes in profiles of other tools, and publishes them as raw batches."""
