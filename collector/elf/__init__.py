"""Reads ELF files: headers, segments, sections, symbols, notes, and the tables in them.

Files come from anybody's container, so nothing in them is trusted: every count and offset is checked, every read has a
limit.
"""
