"""Keeps jobs out of each other's way: locks, the fence, and the record of what is finished."""
