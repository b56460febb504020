"""Reads what the Go runtime keeps for its stack traces: functions, files, lines and inlined calls."""
