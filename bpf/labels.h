/* SPDX-License-Identifier: GPL-2.0-only */
/* Trace contexts in lists of labels, which are pairs of texts: "trace_id" and "span_id", as hexadecimal digits. */
#ifndef ICESTREAM_LABELS_H
#define ICESTREAM_LABELS_H

#include "task.h"

#define MOST_LABELS 16 /* further ones are not looked at */
#define TRACE_ID 0x64695f6563617274ULL /* the name "trace_id", its first letter in the lowest byte */
#define SPAN_ID 0x64695f6e617073ULL
#define TRACE_DIGITS 32
#define SPAN_DIGITS 16

struct text {
	u64 at;
	u64 bytes;
};

struct label {
	struct text name;
	struct text value;
};

struct labels {
	u64 at;
	u64 count;
};

#define EVERY_BYTE(byte) (0x0101010101010101ULL * (byte))
#define REACHES(bytes, least) ((bytes) + EVERY_BYTE(0x80 - (least))) /* sets the top bit of bytes that do; all are below 0x80 */

/* Turns 8 hexadecimal digits, the first in the lowest byte, into 4 bytes. All digits at once: a loop would cost the
 * verifiers of old kernels too much. */
static __always_inline bool from_digits(u64 digits, u32 *bytes)
{
	u64 small = digits | EVERY_BYTE(0x20), numbers, letters;

	if (digits & EVERY_BYTE(0x80))
		return false;
	numbers = REACHES(digits, '0') & ~REACHES(digits, '9' + 1);
	letters = REACHES(small, 'a') & ~REACHES(small, 'f' + 1);
	if (((numbers | letters) & EVERY_BYTE(0x80)) != EVERY_BYTE(0x80))
		return false;
	digits = (digits & EVERY_BYTE(0x0f)) + 9 * (digits >> 6 & EVERY_BYTE(0x01));
	digits = (digits << 4 | digits >> 8) & 0x00ff00ff00ff00ffULL;
	digits = (digits | digits >> 8) & 0x0000ffff0000ffffULL;
	*bytes = digits | digits >> 16;
	return true;
}

/* Reads 16 hexadecimal digits into 8 bytes. */
static __always_inline bool read_id(u64 at, u32 *bytes)
{
	u64 digits[2];

	return bpf_probe_read_user(digits, sizeof(digits), (void *)at) == 0 && from_digits(digits[0], &bytes[0]) &&
		   from_digits(digits[1], &bytes[1]);
}

static __always_inline void swap(struct text *text)
{
	u64 at = text->bytes;

	text->bytes = text->at;
	text->at = at;
}

/* Reads the trace context of labels into 24 bytes, which are zeros before. A trace ID of 16 digits is the low half of one.
 * Of two labels with one name, the first counts. Whatever is not as expected means that there is no context.
 * `bytes_first`: in memory, texts have their length before their address. */
static __always_inline void read_labels(struct labels *labels, bool bytes_first, u8 *into)
{
	struct text trace = {}, span = {};
	u32 ids[6] = {}, i;

#pragma clang loop unroll(disable)
	for (i = 0; i < MOST_LABELS; i++) {
		struct label label;
		u64 name = 0;

		if (i >= labels->count)
			break;
		if (bpf_probe_read_user(&label, sizeof(label), (void *)(labels->at + i * sizeof(label))))
			break;
		if (bytes_first) {
			swap(&label.name);
			swap(&label.value);
		}
		if (label.name.bytes == 8 && !trace.at && read_word(label.name.at, &name) && name == TRACE_ID)
			trace = label.value;
		else if (label.name.bytes == 7 && !span.at && !bpf_probe_read_user(&name, 7, (void *)label.name.at) && name == SPAN_ID)
			span = label.value;
	}
	if (trace.bytes == TRACE_DIGITS ? !read_id(trace.at, ids) : trace.bytes != TRACE_DIGITS / 2)
		return;
	if (!read_id(trace.at + trace.bytes - TRACE_DIGITS / 2, ids + 2) || !(ids[0] | ids[1] | ids[2] | ids[3]))
		return;
	if (span.bytes != SPAN_DIGITS || !read_id(span.at, ids + 4))
		ids[4] = ids[5] = 0;
	__builtin_memcpy(into, ids, sizeof(ids));
}

#endif
