"""What the collector costs on hosts that do different things, beside other profilers in the same run."""
