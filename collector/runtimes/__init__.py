"""Frames of programs whose functions are no functions of a file: interpreters, and compilers that run with them."""
