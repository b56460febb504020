"""Finds the targets of scrape jobs by a Kubernetes API server, with the labels that Prometheus gives them."""
