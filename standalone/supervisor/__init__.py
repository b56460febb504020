"""Runs icestream on one machine: a broker, and the parts as processes that it restarts."""
