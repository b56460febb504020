"""OTLP profiles, made up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.profiles.v1development.profiles_pb2 import Profile, ProfilesData

from icestream.columns.packed import varint

START_UNIX_NANO = 1_770_000_000 * 10**9
PERIOD_NS = 50_000_000
PROFILE_ID = bytes(range(16))


@dataclass
class Otlp:
    """One profile of ten seconds with its dictionary."""

    data: ProfilesData = field(default_factory=ProfilesData)
    strings: dict[str, int] = field(default_factory=lambda: {"": 0})

    def __post_init__(self) -> None:
        dictionary = self.data.dictionary
        dictionary.string_table.append("")
        for table in ("mapping", "location", "function", "link", "attribute", "stack"):
            getattr(dictionary, f"{table}_table").add()
        resource = self.data.resource_profiles.add()
        self.resource = resource.resource
        self.scope = resource.scope_profiles.add()
        self.profile = self.add_profile(("samples", "count"), ("cpu", "nanoseconds"), PERIOD_NS)

    def add_profile(self, kind: tuple[str, str], period_type: tuple[str, str], period: int) -> Profile:
        profile = self.scope.profiles.add(
            time_unix_nano=START_UNIX_NANO, duration_nano=10 * 10**9, period=period, profile_id=PROFILE_ID
        )
        profile.sample_type.type_strindex, profile.sample_type.unit_strindex = map(self.string, kind)
        profile.period_type.type_strindex, profile.period_type.unit_strindex = map(self.string, period_type)
        return profile

    def string(self, text: str) -> int:
        if text not in self.strings:
            self.strings[text] = len(self.strings)
            self.data.dictionary.string_table.append(text)
        return self.strings[text]

    def attribute(self, key: str, value: str | int) -> int:
        table = self.data.dictionary.attribute_table
        given = AnyValue(int_value=value) if isinstance(value, int) else AnyValue(string_value=value)
        table.add(key_strindex=self.string(key), value=given)
        return len(table) - 1

    def mapping(self, file: str, build_ids: Mapping[str, str], memory_start: int = 0) -> int:
        table = self.data.dictionary.mapping_table
        indices = [self.attribute(f"process.executable.build_id.{kind}", text) for kind, text in build_ids.items()]
        table.add(memory_start=memory_start, filename_strindex=self.string(file), attribute_indices=indices)
        return len(table) - 1

    def location(
        self, frame_type: str, lines: Sequence[tuple[str, str, int]] = (), mapping: int = 0, address: int = 0
    ) -> int:
        dictionary = self.data.dictionary
        location = dictionary.location_table.add(mapping_index=mapping, address=address)
        location.attribute_indices.append(self.attribute("profile.frame.type", frame_type))
        for name, file, line in lines:
            dictionary.function_table.add(name_strindex=self.string(name), filename_strindex=self.string(file))
            location.lines.add(function_index=len(dictionary.function_table) - 1, line=line)
        return len(dictionary.location_table) - 1

    def stack(self, *locations: int) -> int:
        self.data.dictionary.stack_table.add(location_indices=locations)
        return len(self.data.dictionary.stack_table) - 1

    def link(self, trace_id: bytes, span_id: bytes) -> int:
        self.data.dictionary.link_table.add(trace_id=trace_id, span_id=span_id)
        return len(self.data.dictionary.link_table) - 1

    def resource_attributes(self, given: Mapping[str, str], by_reference: bool = False) -> None:
        for key, value in given.items():
            if by_reference:
                reference = AnyValue(string_value_strindex=self.string(value))
                self.resource.attributes.append(KeyValue(key_strindex=self.string(key), value=reference))
            else:
                self.resource.attributes.append(KeyValue(key=key, value=AnyValue(string_value=value)))


def host() -> Otlp:
    """What an agent of a host sends: native frames without names, a kernel frame, Python, a trace."""
    made = Otlp()
    made.resource_attributes(
        {"service.name": "checkout", "host.name": "web-1", "host.id": "m1", "k8s.pod.name": "checkout-7"}
    )
    library = made.mapping("/usr/lib/libz.so", {"go": "a/b/c/d", "gnu": "AABB01", "htlhash": "ff"})
    native = made.location("native", mapping=library, address=0x1234)
    kernel = made.location("kernel", [("do_syscall_64", "", 0)])
    python = made.location("cpython", [("handle", "/app/web.py", 12)])
    thread = [made.attribute("process.pid", 71), made.attribute("thread.id", 72), made.attribute("thread.name", "w0")]
    link = made.link(bytes.fromhex("0af7651916cd43dd8448eb211c80319c"), bytes.fromhex("b7ad6b7169203331"))
    made.profile.samples.add(
        stack_index=made.stack(kernel, native, python), attribute_indices=thread, link_index=link,
        timestamps_unix_nano=[START_UNIX_NANO + 10**9, START_UNIX_NANO + 2 * 10**9],
    )  # fmt: skip
    made.profile.samples.add(stack_index=made.stack(python), values=[3])
    made.profile.samples.add(
        stack_index=made.stack(native), values=[2, 5],
        timestamps_unix_nano=[START_UNIX_NANO + 3 * 10**9, START_UNIX_NANO + 4 * 10**9],
    )  # fmt: skip
    return made


def field_of(number: int, data: bytes) -> bytes:
    """A field with a length, as protobuf writes it."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def packed(number: int, values: Sequence[int]) -> bytes:
    return field_of(number, b"".join(map(varint, values)))


def of_samples(samples: Sequence[bytes], profile: bytes = b"", dictionary: bytes = b"") -> bytes:
    """ProfilesData whose profile has these serialized samples and more fields, beside those of `host`."""
    given = host().data
    for sample in list(given.resource_profiles[0].scope_profiles[0].profiles[0].samples):
        given.resource_profiles[0].scope_profiles[0].profiles[0].samples.remove(sample)
    base = given.resource_profiles[0].scope_profiles[0].profiles[0].SerializeToString()
    whole = base + b"".join(field_of(2, sample) for sample in samples) + profile
    tables = given.dictionary.SerializeToString() + dictionary
    return field_of(1, field_of(2, field_of(2, whole))) + field_of(2, tables)
