"""Names of addresses in files: where they come from, and who asks for them."""
