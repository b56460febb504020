"""Data for tests and benchmarks: messages of the topics, and rows of ClickHouse's tables. No module here has tests."""
