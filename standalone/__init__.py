"""The whole on one machine: `icestream up`, `icestream demo`, and the jobs that need both operators and sinks."""
