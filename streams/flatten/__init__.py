"""icestream.flat: samples with everything that their names need, for consumers that know nothing of icestream."""
