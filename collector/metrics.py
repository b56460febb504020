"""Figures of the collector, on /metrics."""

from prometheus_client import Counter, Gauge, Histogram

BATCHES = Counter("icestream_collector_batches_total", "Windows handed over for publishing", ["topic"])
SAMPLES = Counter("icestream_collector_samples_total", "Samples in raw batches")
LOST = Counter("icestream_collector_lost_samples_total", "Samples that the kernel's buffers could not keep")
WAITS = Counter("icestream_collector_off_cpu_samples_total", "Waits of threads in raw batches")
WAITS_LOST = Counter("icestream_collector_lost_off_cpu_samples_total", "Waits that the kernel's tables could not keep")
FREQUENCY = Gauge("icestream_collector_frequency_hertz", "Samples per second and CPU; 0 while other hosts sample")
THROTTLED = Counter("icestream_collector_throttled_total", "How often the CPU budget lowered the frequency")
INTERVALS = Counter("icestream_collector_activity_intervals_total", "Intervals of activity in activity batches")
INTERVALS_DROPPED = Counter(
    "icestream_collector_activity_dropped_total", "Intervals that applications could not hand over"
)
RECEIVED = Gauge(
    "icestream_collector_activity_received",
    "Datagrams of activity that were understood or malformed; intervals refused, without room, of unknown threads",
    ["what"],
)
SENT_BYTES = Counter("icestream_collector_sent_bytes_total", "Bytes that Kafka acknowledged, uncompressed", ["topic"])
ERRORS = Counter("icestream_collector_kafka_errors_total", "Errors of the Kafka client, each of them tried again")
SPOOL_BYTES = Gauge("icestream_collector_spool_bytes", "Bytes waiting on disk or in memory for Kafka")
SPOOL_WINDOWS = Gauge("icestream_collector_spool_windows", "Windows waiting for Kafka")
DROPPED = Counter("icestream_collector_dropped_windows_total", "Windows given up: refused, damaged, or no place left")
DROPPED_SAMPLES = Counter(
    "icestream_collector_dropped_samples_total", "Samples in windows given up, and those these said were lost"
)
SPOOL_FAILURES = Counter(
    "icestream_collector_spool_failures_total", "Windows that the disk did not take: they wait in memory"
)
FAILED = Counter("icestream_collector_failed_windows_total", "Windows lost to an error of ours, see the log")
BUILD_SECONDS = Histogram(
    "icestream_collector_build_seconds",
    "Time to make the messages of a window",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
)
CLOCK_STEPS = Counter("icestream_collector_clock_steps_total", "How often the system's clock was seen to be set")
PROCESSES = Gauge("icestream_collector_processes", "Processes whose mappings are known")
SYMBOL_REQUESTS = Counter("icestream_collector_symbol_requests_total", "Requests for symbols to this host", ["answer"])
CPU_SECONDS = Gauge("icestream_collector_cpu_seconds", "CPU time of this process so far, its children's included")
PROGRAM_SECONDS = Gauge("icestream_collector_bpf_seconds", "CPU time of the eBPF program so far, estimated")
CPU_PERCENT = Gauge(
    "icestream_collector_cpu_percent", "CPU that process, children and program took lately, per cent of one CPU"
)
KUBERNETES_REQUESTS = Counter(
    "icestream_collector_kubernetes_requests_total", "Requests for this node's pods, ok or failed", ["result"]
)
RELABEL_DROPPED = Counter(
    "icestream_collector_relabel_dropped_samples_total", "Samples not sent because a relabeling rule drops their thread"
)
UNWIND_FILES = Gauge("icestream_collector_unwind_files", "Files whose unwinding tables the kernel has")
UNWIND_ROWS = Gauge("icestream_collector_unwind_rows", "Rows of unwinding tables in the kernel, 4 bytes each")
UNWIND_PROCESSES = Gauge("icestream_collector_unwind_processes", "Processes whose mappings the kernel has")
UNWIND_REFUSED = Counter(
    "icestream_collector_unwind_refused_total", "Files without an unwinding table, processes without room", ["what"]
)
PYTHON_REFUSED = Counter(
    "icestream_collector_python_refused_total", "Files with a Python whose frames cannot be read", ["reason"]
)
DEBUGINFOD = Counter("icestream_collector_debuginfod_total", "Debug files asked of debuginfod servers", ["result"])
EVENTS_LOST = Gauge(
    "icestream_collector_events_lost", "Events of processes that the kernel's rings could not keep, so far"
)
STACKS = Gauge(
    "icestream_collector_stacks", "User stacks so far, by where they end: complete, or why they were cut", ["end"]
)
PYTHON_STACKS = Gauge(
    "icestream_collector_python_stacks", "Stacks of Python processes so far, without Python frames or cut", ["what"]
)
