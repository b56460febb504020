"""Messages of the topics: bytes to checked columns, and back.

Each topic has a module with a dataclass of numpy columns and a function that makes it: columns, or `BadMessage` with
what was expected and what came. Every reader takes its data from here, so every part accepts the same messages.
"""
