"""Call trees in memory: stacks become functions, functions become graphs and tables."""
