"""The raw archive: unchanged messages in Parquet files."""
