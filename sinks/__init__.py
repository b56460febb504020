"""Sinks store the topics: in ClickHouse, in the lake (Delta tables), in the raw archive. `resolve` names stored
locations whose symbols come late."""
