"""Pyroscope's QuerierService, for Grafana: docs/grafana.md."""
