"""Readers of the formats that profiles come in: each makes a SentProfile."""
