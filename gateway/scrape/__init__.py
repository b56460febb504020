"""Takes profiles from programs that serve them over HTTP, as Prometheus takes metrics."""
