"""Labels of series: relabeling, limits, and their names in OpenTelemetry."""
