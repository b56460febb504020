"""Recognises profiles of an older opentelemetry-proto, which has the same package but other field numbers.

If a field has the number of another one, the parser does not know it where its wire type differs, and takes it for
valid otherwise. So older versions are recognised by what no profile of 1.10 has. Fields with higher numbers are of
newer versions, and are left out.
"""

from collections.abc import Iterator

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.profiles.v1development.profiles_pb2 import Profile, ProfilesData, Sample

from gateway.errors import Refused, bad_profile, unsupported

EXPECTED = "1.10"
_SMALL_BYTES = 2_000_000
"""In a message of at most this size, each unknown field may become an object."""
_MAX_FIELDS = 10_000
"""Unknown fields of a larger message: each takes a microsecond. A payload is one field, however large it is."""
_OF_MAPPINGS = ("process.executable.build_id.", "profile.frame.type")


def all_profiles(data: ProfilesData) -> list[Profile]:
    """Returns the profiles of all resources and scopes."""
    return [p for resource in data.resource_profiles for scope in resource.scope_profiles for p in scope.profiles]


def check_version(data: ProfilesData) -> None:
    """Raises Refused, with the version that the data seem to have."""
    profiles = all_profiles(data)
    dictionary = data.dictionary
    if profiles and not dictionary.string_table:
        raise _other("1.6 or older")
    if any(_misplaced(pair, 3) for pair in dictionary.attribute_table) or any(_misplaced(p, 3) for p in profiles):
        raise _other("1.7")
    if any(_misplaced(profile, 11) for profile in profiles):
        raise _other("1.8")
    keys = [dictionary.string_table[pair.key_strindex : pair.key_strindex + 1] for pair in dictionary.attribute_table]
    of_mappings = {row for row, key in enumerate(keys) if key and key[0].startswith(_OF_MAPPINGS)}
    if any(_misplaced(sample, 5) for profile in profiles for sample in profile.samples):
        raise _other("1.9")
    if any(_may_be_1_9(profile, len(keys), of_mappings) for profile in profiles):
        links = len(dictionary.link_table)
        # A faulty sample of 1.10 looks the same. It refuses its own profile, where another sample shows the version.
        if not any(_is_1_10(sample, links) for profile in profiles for sample in profile.samples):
            raise _other("1.9")


def _is_1_10(sample: Sample, links: int) -> bool:
    """Whether no sample of 1.9 would look like this one.

    A sample of 1.9 has its values in the field of indices, the index of its link (one number) in the field of values,
    and nothing in the field of the link. It has as many values as timestamps, or none of one of them.
    """
    values, times = sample.values, sample.timestamps_unix_nano
    if sample.link_index or len(values) > 1 or (values and not 0 < values[0] < links):
        return True
    return bool(times and sample.attribute_indices and len(times) != len(sample.attribute_indices))


def _may_be_1_9(profile: Profile, attributes: int, of_mappings: set[int]) -> bool:
    """Whether samples seem to have their values where 1.10 has the indices of attributes."""
    for sample in profile.samples:
        indices = sample.attribute_indices
        if not indices and not sample.values:
            continue
        if not (sample.values or sample.timestamps_unix_nano):
            return True
        if len(set(indices)) < len(indices) or any(not 0 <= i < attributes or i in of_mappings for i in indices):
            return True
    return False


def _misplaced(message: Message, highest: int) -> bool:
    """Whether a field up to this number has another wire type than it should have. Raises Refused."""
    if message.ByteSize() <= _SMALL_BYTES:
        unknown = UnknownFieldSet(message)
        return any(unknown[row].field_number <= highest for row in range(len(unknown)))
    rest = type(message)()
    rest.CopyFrom(message)
    for field, _ in message.ListFields():
        rest.ClearField(field.name)
    return any(number <= highest for number in _numbers(rest.SerializeToString()))


def _numbers(fields: bytes) -> Iterator[int]:
    """Yields the number of each field, without making an object of what it holds. Raises Refused."""
    at = 0
    for _ in range(_MAX_FIELDS):
        if at == len(fields):
            return
        tag, at = _varint(fields, at)
        yield tag >> 3
        match tag & 7:
            case 0:
                _, at = _varint(fields, at)
            case 1:
                at += 8
            case 2:
                length, at = _varint(fields, at)
                at += length
            case 5:
                at += 4
            case _:
                raise bad_profile("expected no groups among unknown fields")
    if at < len(fields):
        raise bad_profile(f"expected at most {_MAX_FIELDS} unknown fields in a large message")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns the number that begins at `at`, and where it ends."""
    value = shift = 0
    while data[at] > 0x7F:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
    return value | data[at] << shift, at + 1


def _other(version: str) -> Refused:
    return unsupported(
        f"the profiles are of opentelemetry-proto {version}; expected {EXPECTED} or newer",
        "send them with a newer agent or Collector",
    )
