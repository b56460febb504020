"""Kafka's logs: reading ranges of messages, and noticing that a log is another one."""
