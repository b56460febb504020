"""Replay and backfill: jobs that run a time range through the operators again, and correct the tables."""
