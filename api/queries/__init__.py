"""What is asked of ClickHouse: a module for each question, with bound arguments only."""
