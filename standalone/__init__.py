"""Everything on one machine: `icestream up` and `icestream demo`."""
