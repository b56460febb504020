/* SPDX-License-Identifier: GPL-2.0-only */
/* In place of libbpf's bpf/bpf_core_read.h: fields lie where kernel_layout.h says; one that was not found reads as 0. */
#ifndef ICESTREAM_BCC_BPF_CORE_READ_H
#define ICESTREAM_BCC_BPF_CORE_READ_H

#define READ_FIELD(from, field)                                                                                   \
	({                                                                                                            \
		typeof(((typeof(from))0)->field) value_ = 0;                                                              \
		if (__builtin_offsetof(typeof(*(from)), field) < UNKNOWN_OFFSET)                                          \
			bpf_probe_read_kernel(&value_, sizeof(value_),                                                        \
								  (char *)(from) + __builtin_offsetof(typeof(*(from)), field));                   \
		value_;                                                                                                   \
	})
#define READ_FIELD_OF(from, pointer, field) READ_FIELD(READ_FIELD(from, pointer), field)
#define READ_NAMED(first, second, name, ...) name
#define BPF_CORE_READ(from, ...) READ_NAMED(__VA_ARGS__, READ_FIELD_OF, READ_FIELD)(from, __VA_ARGS__)

/* Reading says what was found. */
#define bpf_core_field_exists(field) 1
/* Helpers newer than the kernel floor are not used: that the kernel has them is not known without BTF. */
#define bpf_core_enum_value_exists(type, value) 0
#define bpf_core_type_size(type) sizeof(type)

#endif
