"""The demo: icestream profiles a small web service, and shows the CPU of its requests."""
