"""Symbol files: read from Kafka, asked for, and names that come late."""
