"""Messages of the topics as Arrow tables with the columns of the ClickHouse tables."""
