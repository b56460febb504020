"""Batches: windows of samples become the messages of a RawBatch."""
