"""What a process has: memory, descriptors, signals, and its terminal."""
