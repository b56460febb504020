"""The collector in other kernels, and on aarch64: virtual machines that QEMU emulates (`make kernels`)."""
