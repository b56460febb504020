/* SPDX-License-Identifier: GPL-2.0-only */
/* What lists of labels, which are pairs of texts, say of the work of a thread: "trace_id" and "span_id", as hexadecimal
 * digits; "span_name" or dd-trace-go's "trace endpoint", the name of the local root span. */
#ifndef ICESTREAM_LABELS_H
#define ICESTREAM_LABELS_H

#include "task.h"

#define MOST_LABELS 40 /* further ones are not looked at: of a map's buckets, five are */
#define TRACE_ID 0x64695f6563617274ULL, 0 /* the name "trace_id", its first letter in the lowest byte */
#define SPAN_ID 0x64695f6e617073ULL, 0
#define SPAN_NAME 0x6d616e5f6e617073ULL, 0x65
#define TRACE_ENDPOINT 0x6e65206563617274ULL, 0x746e696f7064ULL
#define TRACE_DIGITS 32
#define SPAN_DIGITS 16

struct label {
	struct text name;
	struct text value;
};

/* How labels lie in memory. */
enum layout {
	ADDRESS_FIRST, /* one after the other; of each text, its address comes before its length */
	BYTES_FIRST,   /* the other way round */
	BUCKETS,	   /* in buckets of a map of Go before 1.24 (src/runtime/map.go) */
};

/* A bucket has 8 bytes of hashes, 8 names, 8 values, and the address of another bucket. Slots without a label are zeros,
 * because nothing is taken out of these maps. */
#define BUCKET_SLOTS 8
#define BUCKET_NAMES 8 /* offset */
#define BUCKET_VALUES (BUCKET_NAMES + BUCKET_SLOTS * sizeof(struct text))
#define BUCKET_BYTES (BUCKET_VALUES + BUCKET_SLOTS * sizeof(struct text) + 8)

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

/* Finds the bucket after one of a map: what did not fit into that one is in a bucket of its own. False: it is the last. */
static __always_inline bool find_next_bucket(struct labels *labels)
{
	if (!read_word(labels->bucket + BUCKET_BYTES - sizeof(u64), &labels->bucket))
		return false;
	if (labels->bucket)
		return true;
	labels->count--;
	labels->at += BUCKET_BYTES;
	labels->bucket = labels->at;
	return labels->count != 0;
}

static __always_inline bool read_label(struct labels *labels, u32 i, enum layout layout, struct label *label)
{
	u64 at = labels->at + i * sizeof(*label);

	if (layout == BUCKETS) {
		at = labels->bucket + BUCKET_NAMES + i % BUCKET_SLOTS * sizeof(struct text);
		return !bpf_probe_read_user(&label->name, sizeof(label->name), (void *)at) &&
			   !bpf_probe_read_user(&label->value, sizeof(label->value), (void *)(at + BUCKET_VALUES - BUCKET_NAMES));
	}
	if (bpf_probe_read_user(label, sizeof(*label), (void *)at))
		return false;
	if (layout == BYTES_FIRST) {
		swap(&label->name);
		swap(&label->value);
	}
	return true;
}

/* Whether a text has so many bytes, and is these. */
static __always_inline bool is_text(struct text *text, u64 bytes, u64 first, u64 second)
{
	u64 found[2] = {};

	return text->bytes == bytes && !bpf_probe_read_user(found, bytes, (void *)text->at) && found[0] == first &&
		   found[1] == second;
}

/* A trace ID of 16 digits is the low half of one. */
static __always_inline void read_ids(struct walk *w)
{
	struct text trace = w->trace_id, span = w->span_id;
	u32 ids[6] = {};

	if (trace.bytes == TRACE_DIGITS ? !read_id(trace.at, ids) : trace.bytes != TRACE_DIGITS / 2)
		return;
	if (!read_id(trace.at + trace.bytes - TRACE_DIGITS / 2, ids + 2) || !(ids[0] | ids[1] | ids[2] | ids[3]))
		return;
	if (span.bytes != SPAN_DIGITS || !read_id(span.at, ids + 4))
		ids[4] = ids[5] = 0;
	__builtin_memcpy(w->context.ids, ids, sizeof(ids));
}

/* Reads the name of a span into the words of the description, and its key into the context. */
static __always_inline void read_span_name(struct walk *w)
{
	u64 bytes = w->span_name.bytes, hash = mix(w->d.marker, SPAN);
	u32 i;

	__builtin_memset(w->d.words, 0, SPAN_NAME_WORDS * sizeof(u64));
	asm volatile("" : "+r"(bytes)); /* the bound has to be right before the call, for the verifiers of old kernels */
	if (bytes > SPAN_NAME_WORDS * sizeof(u64))
		bytes = SPAN_NAME_WORDS * sizeof(u64);
	if (!bytes || bpf_probe_read_user(w->d.words, bytes, (void *)w->span_name.at))
		return;
#pragma clang loop unroll(disable)
	for (i = 0; i < SPAN_NAME_WORDS; i++)
		hash = mix(hash, w->d.words[i]);
	w->context.span_name = hash ^ hash >> 47;
}

/* Reads what labels say into the walk's context, which is zeros before. If two labels say the same, the first counts.
 * Whatever is not as expected counts as not there. The values are in the walk: of those on the program's stack, the
 * verifier would follow every combination. */
static __always_inline void read_labels(struct walk *w, enum layout layout)
{
	struct labels *labels = &w->labels;
	u32 i;

	w->trace_id.at = w->trace_id.bytes = w->span_id.at = w->span_id.bytes = w->span_name.at = w->span_name.bytes = 0;

#pragma clang loop unroll(disable)
	for (i = 0; i < MOST_LABELS; i++) {
		struct label label;

		if (layout != BUCKETS ? i >= labels->count : i && i % BUCKET_SLOTS == 0 && !find_next_bucket(labels))
			break;
		if (!read_label(labels, i, layout, &label))
			break;
		if (!w->trace_id.at && is_text(&label.name, 8, TRACE_ID))
			w->trace_id = label.value;
		else if (!w->span_id.at && is_text(&label.name, 7, SPAN_ID))
			w->span_id = label.value;
		else if (!w->span_name.at && (is_text(&label.name, 9, SPAN_NAME) || is_text(&label.name, 14, TRACE_ENDPOINT)))
			w->span_name = label.value;
	}
	read_ids(w);
	read_span_name(w);
}

#endif
