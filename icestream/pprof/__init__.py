"""The pprof profile format, generated from schemas/icestream/pprof/profile.proto."""
