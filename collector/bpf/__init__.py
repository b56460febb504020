"""The eBPF programs: loads them, runs them, and reads their records."""
