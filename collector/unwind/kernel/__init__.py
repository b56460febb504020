"""The eBPF maps with unwinding tables and mappings, kept up to date."""
