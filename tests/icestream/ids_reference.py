"""schemas/ids.md, word by word, in plain Python integers. Shares no code with icestream.ids.

python -m tests.icestream.ids_reference > schemas/id_vectors.json
"""

import functools
import json
import struct

MASK = 2**64 - 1


def fmix64(x: int) -> int:
    x ^= x >> 33
    x = x * 0xFF51AFD7ED558CCD & MASK
    x ^= x >> 33
    x = x * 0xC4CEB9FE1A85EC53 & MASK
    return x ^ x >> 33


def identifier(x: int) -> int:
    return x or 1


def combine(a: int, b: int) -> int:
    return identifier(fmix64(fmix64((a + 0x9E3779B97F4A7C15) & MASK) ^ b))


def text(*strings: str) -> bytes:
    encoded = [string.encode() for string in strings]
    return b"".join(len(s).to_bytes(4, "little") + s for s in encoded)


def mapping(build_id: str, file: str) -> int:
    return xxh3(text("mapping", build_id, file))


def location(mapping_id: int, address: int) -> int:
    return combine(mapping_id, address)


def function_in_file(function: str, file: str) -> int:
    return combine(xxh3(function.encode()), xxh3(file.encode()))


def named(function: str, file: str, line: int) -> int:
    return combine(function_in_file(function, file), line)


def with_lines(location_id: int, lines: list[tuple[str, str, int, int]]) -> int:
    for function, file, line, start_line in lines:
        location_id = combine(location_id, combine(function_in_file(function, file), line + (start_line << 32)))
    return location_id


def nodes(locations_root_first: list[int]) -> list[int]:
    found = []
    total = 0
    for depth, location_id in enumerate(locations_root_first):
        total = total + combine(location_id, depth) & MASK
        found.append(identifier(total))
    return found


def series(labels: dict[str, str]) -> int:
    pairs = sorted((name.encode(), value.encode()) for name, value in labels.items() if value)
    flat = b"".join(len(part).to_bytes(4, "little") + part for pair in pairs for part in pair)
    return identifier(xxh3(text("series") + flat))


# XXH3_64bits with seed 0 (the xxHash specification, "XXH3").

SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
P32 = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
P64 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
MX1, MX2 = 0x165667919E3779F9, 0x9FB21C651E98DF25


def u32(data: bytes, at: int) -> int:
    return int(struct.unpack_from("<I", data, at)[0])


def u64(data: bytes, at: int) -> int:
    return int(struct.unpack_from("<Q", data, at)[0])


def fold(a: int, b: int) -> int:
    product = a * b
    return product & MASK ^ product >> 64


def avalanche(h: int) -> int:
    h ^= h >> 37
    h = h * MX1 & MASK
    return h ^ h >> 32


def xxh64_avalanche(h: int) -> int:
    h = (h ^ h >> 33) * P64[1] & MASK
    h = (h ^ h >> 29) * P64[2] & MASK
    return h ^ h >> 32


def swap64(x: int) -> int:
    return int.from_bytes(x.to_bytes(8, "little"), "big")


def rotate(x: int, bits: int) -> int:
    return (x << bits | x >> 64 - bits) & MASK


def mix16(data: bytes, at: int, secret_at: int) -> int:
    return fold(u64(data, at) ^ u64(SECRET, secret_at), u64(data, at + 8) ^ u64(SECRET, secret_at + 8))


@functools.lru_cache(10_000)  # in Python it is slow, and tests ask for the same names again and again
def xxh3(data: bytes) -> int:
    n = len(data)
    if n == 0:
        return xxh64_avalanche(u64(SECRET, 56) ^ u64(SECRET, 64))
    if n <= 3:
        combined = data[0] << 16 | data[n >> 1] << 24 | data[-1] | n << 8
        return xxh64_avalanche(combined ^ u32(SECRET, 0) ^ u32(SECRET, 4))
    if n <= 8:
        keyed = (u32(data, n - 4) + (u32(data, 0) << 32)) ^ u64(SECRET, 8) ^ u64(SECRET, 16)
        h = keyed ^ rotate(keyed, 49) ^ rotate(keyed, 24)
        h = h * MX2 & MASK
        h ^= (h >> 35) + n
        h = h * MX2 & MASK
        return h ^ h >> 28
    if n <= 16:
        low = u64(data, 0) ^ u64(SECRET, 24) ^ u64(SECRET, 32)
        high = u64(data, n - 8) ^ u64(SECRET, 40) ^ u64(SECRET, 48)
        return avalanche((n + swap64(low) + high + fold(low, high)) & MASK)
    if n <= 128:
        total = n * P64[0]
        for i in reversed(range((n - 1) // 32 + 1)):
            total += mix16(data, 16 * i, 32 * i) + mix16(data, n - 16 * (i + 1), 32 * i + 16)
        return avalanche(total & MASK)
    if n <= 240:
        total = n * P64[0] + sum(mix16(data, 16 * i, 16 * i) for i in range(8))
        total = avalanche(total & MASK)
        total += sum(mix16(data, 16 * i, 16 * (i - 8) + 3) for i in range(8, n // 16))
        return avalanche((total + mix16(data, n - 16, 136 - 17)) & MASK)
    return long(data)


def long(data: bytes) -> int:
    n = len(data)
    lanes = [P32[2], P64[0], P64[1], P64[2], P64[3], P32[1], P64[4], P32[0]]
    stripes_per_block = (len(SECRET) - 64) // 8
    for stripe in range((n - 1) // 64):
        accumulate(lanes, data, 64 * stripe, 8 * (stripe % stripes_per_block))
        if stripe % stripes_per_block == stripes_per_block - 1:
            for i in range(8):
                lanes[i] = (lanes[i] ^ lanes[i] >> 47 ^ u64(SECRET, len(SECRET) - 64 + 8 * i)) * P32[0] & MASK
    accumulate(lanes, data, n - 64, len(SECRET) - 64 - 7)
    total = n * P64[0]
    for i in range(4):
        total += fold(lanes[2 * i] ^ u64(SECRET, 11 + 16 * i), lanes[2 * i + 1] ^ u64(SECRET, 11 + 16 * i + 8))
    return avalanche(total & MASK)


def accumulate(lanes: list[int], data: bytes, at: int, secret_at: int) -> None:
    for i in range(8):
        value = u64(data, at + 8 * i)
        keyed = value ^ u64(SECRET, secret_at + 8 * i)
        lanes[i ^ 1] = (lanes[i ^ 1] + value) & MASK
        lanes[i] = (lanes[i] + (keyed & 0xFFFFFFFF) * (keyed >> 32)) & MASK


def vectors() -> dict[str, list[dict[str, object]]]:
    """Examples for implementations in other languages; numbers in hex."""

    def hexadecimal(x: int) -> str:
        return f"{x:016x}"

    build_id = "gnu:1f2e3d4c5b6a79880716253443526170fedcba98"
    program, library = mapping(build_id, "/usr/bin/program"), mapping("", "/usr/lib/libé.so")
    stack = [
        location(program, 0x1129),
        location(program, 0x2000),
        location(library, 2**64 - 1),
        named("run", "a.js", 7),
    ]
    pairs = [(0, 0), (1, 0), (0, 1), (2**64 - 1, 2**64 - 1), (0x0123456789ABCDEF, 42)]
    files = [(build_id, "/usr/bin/program"), (build_id, "/other"), ("", "/usr/lib/libé.so"), ("", "")]
    labels = [{}, {"service": "checkout"}, {"service": "checkout", "host": "a", "pod": ""}, {"ä": "ö", "z": "1"}]
    names = [("run", "a.js", 7), ("", "", 0), ("größe", "/src/ä.py", 2**32 - 1)]
    sizes = [0, 1, 3, 4, 8, 9, 16, 17, 64, 128, 129, 200, 240, 241, 1024, 2000]
    inputs = [bytes(i * 7 % 256 for i in range(size)) for size in sizes]
    return {
        "xxh3": [{"bytes": data.hex(), "hash": hexadecimal(xxh3(data))} for data in inputs],
        "combine": [
            {"a": hexadecimal(a), "b": hexadecimal(b), "combined": hexadecimal(combine(a, b))} for a, b in pairs
        ],
        "mapping": [{"build_id": b, "file": f, "id": hexadecimal(mapping(b, f))} for b, f in files],
        "named_location": [
            {"function": f, "file": p, "line": line, "id": hexadecimal(named(f, p, line))} for f, p, line in names
        ],
        "location_with_lines": [
            {
                "mapping": hexadecimal(program),
                "address": hexadecimal(0x1129),
                "lines_innermost_first": [list(line) for line in lines],
                "id": hexadecimal(with_lines(location(program, 0x1129), lines)),
            }
            for lines in ([("f", "a.c", 7, 3)], [("f", "a.c", 7, 3), ("größe", "", 2**31 - 1, 0)])
        ],
        "series": [{"labels": some, "id": hexadecimal(series(some))} for some in labels],
        "stack": [
            {
                "locations_root_first": [hexadecimal(x) for x in stack[:depth]],
                "nodes_root_first": [hexadecimal(x) for x in nodes(stack[:depth])],
            }
            for depth in (1, 4)
        ],
    }


if __name__ == "__main__":
    print(json.dumps(vectors(), indent=1, ensure_ascii=False))
