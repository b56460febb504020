"""What a query may do to stacks before they are summed up: choose them, take frames out, turn them round."""
