"""Checked messages as Arrow tables with the columns of the ClickHouse tables."""
