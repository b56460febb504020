"""Builds rollups of closed buckets, and drops samples that these stand for."""
