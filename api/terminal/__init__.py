"""The API asked from a terminal, and its answers drawn there."""
