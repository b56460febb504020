"""Delivery: messages to Kafka, by way of a spool on disk."""
