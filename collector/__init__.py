"""The agent on a host: samples from the kernel, mappings and labels, batches to Kafka, symbols on request."""

import os

# numpy's threads for linear algebra would keep the capabilities that we give up, and nothing here needs them.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
