"""The agent on a host: samples from the kernel, mappings and labels, batches to Kafka, symbols on request."""
