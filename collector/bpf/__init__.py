"""The programs in the kernel: loading them, running them, reading what they tell."""
