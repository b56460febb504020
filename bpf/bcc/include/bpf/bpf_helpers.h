/* SPDX-License-Identifier: GPL-2.0-only */
/* In place of libbpf's bpf/bpf_helpers.h: BCC declares the helpers itself, those on maps under names of its own.
 *
 * Declarations of maps only tell their types here. collector/bpf/loaders/bcc.py creates the maps, and MAP(name) is its number there.
 */
#ifndef ICESTREAM_BCC_BPF_HELPERS_H
#define ICESTREAM_BCC_BPF_HELPERS_H

#define SEC(name)
#define __uint(name, value) int(*name)[value]
#define __type(name, value) typeof(value) *name
#define __always_inline inline __attribute__((always_inline))

#define bpf_map_lookup_elem(map, key) bpf_map_lookup_elem_((uintptr_t)(map), key)
#define bpf_map_update_elem(map, key, value, flags) bpf_map_update_elem_((uintptr_t)(map), key, value, flags)
#define bpf_map_delete_elem(map, key) bpf_map_delete_elem_((uintptr_t)(map), key)
#define bpf_tail_call(ctx, map, index) ((void (*)(void *, void *, u32))BPF_FUNC_tail_call)(ctx, map, index)

#endif
