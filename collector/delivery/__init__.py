"""Delivery: sends messages to Kafka through a spool on disk."""
