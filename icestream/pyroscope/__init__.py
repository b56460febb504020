"""Messages of Pyroscope's API, generated from schemas/icestream/pyroscope."""
