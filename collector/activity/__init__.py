"""Activity: what applications report about their requests."""
