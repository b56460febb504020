/* SPDX-License-Identifier: GPL-2.0-only */
/* The kernel floor: what it has, newer ones have. */
#define KERNEL_VERSION(a, b, c) (((a) << 16) + ((b) << 8) + (c))
#define LINUX_VERSION_CODE KERNEL_VERSION(5, 8, 0)
