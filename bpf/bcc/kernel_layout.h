/* SPDX-License-Identifier: GPL-2.0-only */
/* The structures of the running kernel, as far as they are used. The loader defines OFFSET_ for the fields that it found
 * (collector/bpf/loaders/task_layout.py).
 */
#define UNKNOWN_OFFSET 65536 /* larger than these structures */

#ifndef OFFSET_TGID
#define OFFSET_TGID UNKNOWN_OFFSET
#endif
#ifndef OFFSET_REAL_PARENT
#define OFFSET_REAL_PARENT UNKNOWN_OFFSET
#endif
#ifndef OFFSET_MM
#define OFFSET_MM UNKNOWN_OFFSET
#endif
#ifndef OFFSET_START_CODE
#define OFFSET_START_CODE UNKNOWN_OFFSET
#endif
#ifndef OFFSET_START_STACK
#define OFFSET_START_STACK UNKNOWN_OFFSET
#endif
#ifndef OFFSET_FSBASE
#define OFFSET_FSBASE UNKNOWN_OFFSET
#endif
#ifndef OFFSET_STACK
#define OFFSET_STACK UNKNOWN_OFFSET
#endif

#ifndef OFFSET_STATE
#define OFFSET_STATE UNKNOWN_OFFSET
#endif

/* One member of a union whose members lie at different offsets. */
#define AT(offset, declaration)     \
	struct {                        \
		char before_##offset[offset]; \
		declaration;                \
	}

struct mm_struct {
	union {
		AT(OFFSET_START_CODE, unsigned long start_code);
		AT(OFFSET_START_STACK, unsigned long start_stack);
	};
};

struct task_struct {
	union {
		AT(OFFSET_TGID, int tgid);
		AT(OFFSET_REAL_PARENT, struct task_struct *real_parent);
		AT(OFFSET_MM, struct mm_struct *mm);
		AT(OFFSET_STACK, void *stack);
	};
};

/* With either name, the first 32 bits are read. */
struct task_struct___before_5_14 {
	AT(OFFSET_STATE, unsigned int state);
};

struct task_struct___since_5_14 {
	AT(OFFSET_STATE, unsigned int __state);
};

struct task_struct___x86 {
	AT(OFFSET_FSBASE, struct { unsigned long fsbase; } thread);
};

struct task_struct___arm64 {
	struct {
		struct {
			unsigned long tp_value;
		} uw;
	} thread;
};
