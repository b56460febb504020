"""Frames of JavaScript in V8: Node and what else embeds it."""
