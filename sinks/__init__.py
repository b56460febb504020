"""What keeps the topics: ClickHouse, Parquet (Delta tables), the raw archive; and `resolve`: late symbols' names."""
