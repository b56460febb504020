from icestream.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StackBatch(_message.Message):
    __slots__ = ("source", "published_unix_nano", "seen_unix_nano", "strings", "mappings", "node_id", "node_parent_id", "node_location_id", "location_id", "location_mapping", "location_address", "location_version", "location_line_count", "line_function", "line_file", "line_number", "line_start_line")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_UNIX_NANO_FIELD_NUMBER: _ClassVar[int]
    SEEN_UNIX_NANO_FIELD_NUMBER: _ClassVar[int]
    STRINGS_FIELD_NUMBER: _ClassVar[int]
    MAPPINGS_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_PARENT_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_LOCATION_ID_FIELD_NUMBER: _ClassVar[int]
    LOCATION_ID_FIELD_NUMBER: _ClassVar[int]
    LOCATION_MAPPING_FIELD_NUMBER: _ClassVar[int]
    LOCATION_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LOCATION_VERSION_FIELD_NUMBER: _ClassVar[int]
    LOCATION_LINE_COUNT_FIELD_NUMBER: _ClassVar[int]
    LINE_FUNCTION_FIELD_NUMBER: _ClassVar[int]
    LINE_FILE_FIELD_NUMBER: _ClassVar[int]
    LINE_NUMBER_FIELD_NUMBER: _ClassVar[int]
    LINE_START_LINE_FIELD_NUMBER: _ClassVar[int]
    source: _common_pb2.Source
    published_unix_nano: int
    seen_unix_nano: int
    strings: _containers.RepeatedScalarFieldContainer[str]
    mappings: _containers.RepeatedCompositeFieldContainer[_common_pb2.Mapping]
    node_id: _containers.RepeatedScalarFieldContainer[int]
    node_parent_id: _containers.RepeatedScalarFieldContainer[int]
    node_location_id: _containers.RepeatedScalarFieldContainer[int]
    location_id: _containers.RepeatedScalarFieldContainer[int]
    location_mapping: _containers.RepeatedScalarFieldContainer[int]
    location_address: _containers.RepeatedScalarFieldContainer[int]
    location_version: _containers.RepeatedScalarFieldContainer[int]
    location_line_count: _containers.RepeatedScalarFieldContainer[int]
    line_function: _containers.RepeatedScalarFieldContainer[int]
    line_file: _containers.RepeatedScalarFieldContainer[int]
    line_number: _containers.RepeatedScalarFieldContainer[int]
    line_start_line: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, source: _Optional[_Union[_common_pb2.Source, _Mapping]] = ..., published_unix_nano: _Optional[int] = ..., seen_unix_nano: _Optional[int] = ..., strings: _Optional[_Iterable[str]] = ..., mappings: _Optional[_Iterable[_Union[_common_pb2.Mapping, _Mapping]]] = ..., node_id: _Optional[_Iterable[int]] = ..., node_parent_id: _Optional[_Iterable[int]] = ..., node_location_id: _Optional[_Iterable[int]] = ..., location_id: _Optional[_Iterable[int]] = ..., location_mapping: _Optional[_Iterable[int]] = ..., location_address: _Optional[_Iterable[int]] = ..., location_version: _Optional[_Iterable[int]] = ..., location_line_count: _Optional[_Iterable[int]] = ..., line_function: _Optional[_Iterable[int]] = ..., line_file: _Optional[_Iterable[int]] = ..., line_number: _Optional[_Iterable[int]] = ..., line_start_line: _Optional[_Iterable[int]] = ...) -> None: ...
