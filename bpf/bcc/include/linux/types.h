/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ICESTREAM_BCC_TYPES_H
#define ICESTREAM_BCC_TYPES_H

#include "../../../kernel_types.h"

#define __aligned_u64 __u64 __attribute__((aligned(8)))
typedef unsigned long size_t;
typedef unsigned long uintptr_t;

#endif
