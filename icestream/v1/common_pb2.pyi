from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BatchId(_message.Message):
    __slots__ = ("collector", "started_unix_nano", "sequence", "part", "parts")
    COLLECTOR_FIELD_NUMBER: _ClassVar[int]
    STARTED_UNIX_NANO_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    collector: str
    started_unix_nano: int
    sequence: int
    part: int
    parts: int
    def __init__(self, collector: _Optional[str] = ..., started_unix_nano: _Optional[int] = ..., sequence: _Optional[int] = ..., part: _Optional[int] = ..., parts: _Optional[int] = ...) -> None: ...

class Source(_message.Message):
    __slots__ = ("batch", "cluster", "topic", "partition", "offset", "part", "parts")
    BATCH_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    batch: BatchId
    cluster: str
    topic: str
    partition: int
    offset: int
    part: int
    parts: int
    def __init__(self, batch: _Optional[_Union[BatchId, _Mapping]] = ..., cluster: _Optional[str] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., part: _Optional[int] = ..., parts: _Optional[int] = ...) -> None: ...

class Mapping(_message.Message):
    __slots__ = ("kind", "build_id", "file")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNKNOWN: _ClassVar[Mapping.Kind]
        FILE: _ClassVar[Mapping.Kind]
        KERNEL: _ClassVar[Mapping.Kind]
        MODULE: _ClassVar[Mapping.Kind]
        NAMED: _ClassVar[Mapping.Kind]
        SENT: _ClassVar[Mapping.Kind]
    UNKNOWN: Mapping.Kind
    FILE: Mapping.Kind
    KERNEL: Mapping.Kind
    MODULE: Mapping.Kind
    NAMED: Mapping.Kind
    SENT: Mapping.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    BUILD_ID_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    kind: Mapping.Kind
    build_id: str
    file: str
    def __init__(self, kind: _Optional[_Union[Mapping.Kind, str]] = ..., build_id: _Optional[str] = ..., file: _Optional[str] = ...) -> None: ...

class Label(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class Series(_message.Message):
    __slots__ = ("id", "labels")
    ID_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    id: int
    labels: _containers.RepeatedCompositeFieldContainer[Label]
    def __init__(self, id: _Optional[int] = ..., labels: _Optional[_Iterable[_Union[Label, _Mapping]]] = ...) -> None: ...
