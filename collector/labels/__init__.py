"""Labels of sampled threads."""
