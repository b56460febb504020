"""What keeps the collector cheap, and without privileges that it does not need."""
