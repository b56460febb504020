"""One partition: its task, its state, its outputs, and its recovery."""
