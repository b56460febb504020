"""What brings the eBPF programs into the kernel: libbpf, or BCC where the kernel has no BTF."""
