"""Fields in files of Prometheus, Parca and Pyroscope that icestream does not support."""

NOT_ABOUT_SCRAPING = (
    "alerting", "object_storage", "otlp", "remote_read", "remote_write", "rule_files", "runtime", "storage", "tracing",
)  # fmt: skip
"""Sections of a file that is pasted as it is: they are left out."""
GLOBAL_ABOUT_METRICS = (
    "always_scrape_classic_histograms", "convert_classic_histograms_to_nhcb", "evaluation_interval",
    "extra_scrape_metrics", "metric_name_escaping_scheme", "metric_name_validation_scheme", "query_log_file",
    "rule_query_offset", "scrape_native_histograms", "scrape_protocols",
)  # fmt: skip
"""Fields of its section `global` that are left out, too."""

_OTHERS = {
    # of jobs of Prometheus
    "honor_labels", "honor_timestamps", "track_timestamps_staleness", "metrics_path", "metric_relabel_configs",
    "attach_metadata", "fallback_scrape_protocol", "enable_compression", "enable_http2", "keep_dropped_targets",
    "native_histogram_min_bucket_factor", "scrape_failure_log_file", "scrape_classic_histograms",
    # of how Prometheus asks
    "oauth2", "no_proxy", "proxy_from_environment", "proxy_connect_header", "min_version", "max_version", "ca",
    "ca_ref", "cert", "cert_ref", "key", "key_ref", "credentials_ref", "username_file", "username_ref", "password_ref",
    # of whole files, of Parca and of Pyroscope
    "scrape_config_files",
    "normalized_addresses", "seconds", "header", "scrape-configs", "enabled-profiles", "application-name",
}  # fmt: skip


def is_known_elsewhere(name: str) -> bool:
    """Whether one of these tools knows the field, so that it is not misspelled."""
    return (
        name in _OTHERS
        or name in GLOBAL_ABOUT_METRICS
        or name in NOT_ABOUT_SCRAPING
        or name.endswith(("_sd_configs", "_limit"))
    )
