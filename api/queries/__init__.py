"""Queries of ClickHouse: one module for each question; arguments are always bound."""
