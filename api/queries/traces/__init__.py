"""Queries of single requests: the heaviest ones, and the CPU of one."""
