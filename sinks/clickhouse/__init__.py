"""The ClickHouse sink, its tables on one server or a cluster, and its disk."""
