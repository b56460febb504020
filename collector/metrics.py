"""Metrics of the collector."""

from prometheus_client import Counter, Gauge, Histogram

from icestream.http.metrics import CountedElsewhere

BATCHES = Counter("icestream_collector_batches_total", "windows given to the publisher", ["topic"])
SAMPLES = Counter("icestream_collector_samples_total", "samples in raw batches")
LOST = Counter("icestream_collector_lost_samples_total", "samples that did not fit into the kernel's buffers")
WAITS = Counter("icestream_collector_off_cpu_samples_total", "waits of threads in raw batches")
WAITS_LOST = Counter(
    "icestream_collector_lost_off_cpu_samples_total", "waits that did not fit into the kernel's tables"
)
FREQUENCY = Gauge("icestream_collector_frequency_hertz", "samples per second and CPU; 0 while other hosts sample")
THROTTLED = Counter("icestream_collector_throttled_total", "times the CPU budget lowered the frequency")
SHED = Gauge(
    "icestream_collector_shed_level",
    "work put off to stay within the CPU budget: 1: details of new processes; 2: answers within a tenth of a second",
)
DEFERRED = Counter(
    "icestream_collector_deferred_processes_total", "sampled processes whose details were to be read later"
)
OVER_BUDGET = Gauge("icestream_collector_over_budget", "1 while the collector can do no less, and exceeds its budget")
INTERVALS = Counter("icestream_collector_activity_intervals_total", "intervals of activity in activity batches")
INTERVALS_DROPPED = Counter("icestream_collector_activity_dropped_total", "intervals that applications could not send")
RECEIVED = CountedElsewhere(
    "icestream_collector_activity_received_total",
    "datagrams of activity by outcome; intervals that were refused, by reason",
    "what",
)
SENT_BYTES = Counter("icestream_collector_sent_bytes_total", "bytes that Kafka acknowledged, uncompressed", ["topic"])
ERRORS = Counter("icestream_collector_kafka_errors_total", "errors of the Kafka client, each of which is tried again")
SPOOL_BYTES = Gauge("icestream_collector_spool_bytes", "bytes waiting on disk or in memory for Kafka")
SPOOL_WINDOWS = Gauge("icestream_collector_spool_windows", "windows waiting for Kafka")
DROPPED = Counter("icestream_collector_dropped_windows_total", "windows given up: refused, damaged, or without room")
DROPPED_SAMPLES = Counter(
    "icestream_collector_dropped_samples_total",
    "samples in windows that were given up, and lost samples that those windows reported",
)
SPOOL_FAILURES = Counter(
    "icestream_collector_spool_failures_total", "windows that could not be written to the disk and wait in memory"
)
FAILED = Counter(
    "icestream_collector_failed_windows_total", "windows lost because of an error in the collector, see the log"
)
BUILD_SECONDS = Histogram(
    "icestream_collector_build_seconds",
    "time to make the messages of a window",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
)
CLOCK_STEPS = Counter("icestream_collector_clock_steps_total", "times the system's clock was set")
CONTEXT_PROCESSES = Gauge(
    "icestream_collector_thread_context_processes",
    "processes that publish trace contexts (thread contexts, custom labels, labels of Go), by whether they can be read",
    ["state"],
)
HANGING_MOUNTS = Gauge("icestream_collector_hanging_mounts", "mounts that do not answer, whose files are left alone")
HANGING_PROCESSES = Gauge(
    "icestream_collector_hanging_processes", "processes whose memory does not answer, which is left alone"
)
STALLED_THREADS = Gauge(
    "icestream_collector_stalled_threads", "threads that serve all processes, and wait for one thing for ten seconds"
)
PROCESSES = Gauge("icestream_collector_processes", "processes whose mappings are known")
SYMBOL_REQUESTS = Counter(
    "icestream_collector_symbol_requests_total", "symbol requests to this host, by answer", ["answer"]
)
CPU_SECONDS = CountedElsewhere("icestream_collector_cpu_seconds_total", "CPU time of this process and its children")
THREAD_SECONDS = CountedElsewhere(
    "icestream_collector_thread_cpu_seconds_total", "CPU time of this process, by thread, and of its children", "thread"
)
PROGRAM_SECONDS = CountedElsewhere("icestream_collector_bpf_seconds_total", "estimated CPU time of the eBPF programs")
CPU_BUDGET_PERCENT = Gauge(
    "icestream_collector_cpu_budget_percent", "the CPU budget in percent of one CPU; 0: no limit"
)
CPU_PERCENT = Gauge(
    "icestream_collector_cpu_percent",
    "recent CPU use of the process, its children and the eBPF programs, in percent of one CPU",
)
KUBERNETES_REQUESTS = Counter(
    "icestream_collector_kubernetes_requests_total", "requests for this node's pods, by result", ["result"]
)
RELABEL_DROPPED = Counter(
    "icestream_collector_relabel_dropped_samples_total", "samples of threads that a relabeling rule drops"
)
INTERVALS_RELABEL_DROPPED = Counter(
    "icestream_collector_relabel_dropped_intervals_total",
    "intervals of activity of threads that a relabeling rule drops",
)
UNWIND_FILES = Gauge("icestream_collector_unwind_files", "files whose unwinding tables are in the kernel")
UNWIND_ROWS = Gauge("icestream_collector_unwind_rows", "rows of the unwinding tables in the kernel, 4 bytes each")
UNWIND_PROCESSES = Gauge("icestream_collector_unwind_processes", "processes whose mappings are in the kernel")
UNWIND_REFUSED = Counter(
    "icestream_collector_unwind_refused_total", "files without an unwinding table, and processes without room", ["what"]
)
RUNTIMES_REFUSED = Counter(
    "icestream_collector_runtimes_refused_total",
    "files with a managed runtime whose frames cannot be read, by reason",
    ["runtime", "reason"],
)
PERF_MAPS_FAILED = Counter(
    "icestream_collector_perf_maps_failed_total",
    "perf maps that are not read any more, because the process that read them died or took too long",
)
DEBUGINFOD = Counter(
    "icestream_collector_debuginfod_total", "debug files requested from debuginfod servers, by result", ["result"]
)
EVENTS_LOST = CountedElsewhere(
    "icestream_collector_lost_events_total", "events of processes that did not fit into the kernel's rings"
)
STACKS = CountedElsewhere(
    "icestream_collector_stacks_total", "user stacks, by how they end: complete, or why they were cut", "end"
)
PYTHON_STACKS = CountedElsewhere(
    "icestream_collector_python_stacks_total",
    "stacks of Python processes that have no Python frames or were cut",
    "what",
)
