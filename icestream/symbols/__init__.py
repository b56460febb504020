"""Names of addresses: SymCaches, build IDs, and code without names."""
