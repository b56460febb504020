/* SPDX-License-Identifier: GPL-2.0-only */
/* Python frames of a thread. */
#ifndef ICESTREAM_PYTHON_H
#define ICESTREAM_PYTHON_H

#include "kernel_types.h"

struct python_walk {
	u64 frame;
};

#endif
