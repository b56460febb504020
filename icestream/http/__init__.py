"""HTTP servers and metrics, and what they refuse."""
