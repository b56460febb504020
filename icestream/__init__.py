"""The library that all parts of icestream share, and that users import: messages, IDs, topics, clients, settings."""
