"""Clients of Kafka, dead letters, and whether a consumer group can work."""
