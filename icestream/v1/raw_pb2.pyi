from icestream.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RawBatch(_message.Message):
    __slots__ = ("id", "host_id", "profile_type", "start_unix_nano", "end_unix_nano", "period", "published_unix_nano", "clock_offset_ns", "activity_complete_unix_nano", "activity_sequence", "lost_samples", "dropped_samples", "configured_period", "strings", "mappings", "series", "location_mapping", "location_address", "location_function", "location_file", "location_line", "location_line_count", "line_function", "line_file", "line_number", "line_start_line", "stack_depth", "stack_frames", "stack_id", "context_trace_ids", "context_span_ids", "sample_offset_us", "sample_series", "sample_pid", "sample_tid", "sample_stack", "sample_context", "sample_count", "sample_value")
    ID_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    PROFILE_TYPE_FIELD_NUMBER: _ClassVar[int]
    START_UNIX_NANO_FIELD_NUMBER: _ClassVar[int]
    END_UNIX_NANO_FIELD_NUMBER: _ClassVar[int]
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_UNIX_NANO_FIELD_NUMBER: _ClassVar[int]
    CLOCK_OFFSET_NS_FIELD_NUMBER: _ClassVar[int]
    ACTIVITY_COMPLETE_UNIX_NANO_FIELD_NUMBER: _ClassVar[int]
    ACTIVITY_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LOST_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    DROPPED_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    CONFIGURED_PERIOD_FIELD_NUMBER: _ClassVar[int]
    STRINGS_FIELD_NUMBER: _ClassVar[int]
    MAPPINGS_FIELD_NUMBER: _ClassVar[int]
    SERIES_FIELD_NUMBER: _ClassVar[int]
    LOCATION_MAPPING_FIELD_NUMBER: _ClassVar[int]
    LOCATION_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LOCATION_FUNCTION_FIELD_NUMBER: _ClassVar[int]
    LOCATION_FILE_FIELD_NUMBER: _ClassVar[int]
    LOCATION_LINE_FIELD_NUMBER: _ClassVar[int]
    LOCATION_LINE_COUNT_FIELD_NUMBER: _ClassVar[int]
    LINE_FUNCTION_FIELD_NUMBER: _ClassVar[int]
    LINE_FILE_FIELD_NUMBER: _ClassVar[int]
    LINE_NUMBER_FIELD_NUMBER: _ClassVar[int]
    LINE_START_LINE_FIELD_NUMBER: _ClassVar[int]
    STACK_DEPTH_FIELD_NUMBER: _ClassVar[int]
    STACK_FRAMES_FIELD_NUMBER: _ClassVar[int]
    STACK_ID_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_TRACE_IDS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_SPAN_IDS_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_OFFSET_US_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_SERIES_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_PID_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_TID_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_STACK_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_COUNT_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_VALUE_FIELD_NUMBER: _ClassVar[int]
    id: _common_pb2.BatchId
    host_id: str
    profile_type: str
    start_unix_nano: int
    end_unix_nano: int
    period: int
    published_unix_nano: int
    clock_offset_ns: int
    activity_complete_unix_nano: int
    activity_sequence: int
    lost_samples: int
    dropped_samples: int
    configured_period: int
    strings: _containers.RepeatedScalarFieldContainer[str]
    mappings: _containers.RepeatedCompositeFieldContainer[_common_pb2.Mapping]
    series: _containers.RepeatedCompositeFieldContainer[_common_pb2.Series]
    location_mapping: _containers.RepeatedScalarFieldContainer[int]
    location_address: _containers.RepeatedScalarFieldContainer[int]
    location_function: _containers.RepeatedScalarFieldContainer[int]
    location_file: _containers.RepeatedScalarFieldContainer[int]
    location_line: _containers.RepeatedScalarFieldContainer[int]
    location_line_count: _containers.RepeatedScalarFieldContainer[int]
    line_function: _containers.RepeatedScalarFieldContainer[int]
    line_file: _containers.RepeatedScalarFieldContainer[int]
    line_number: _containers.RepeatedScalarFieldContainer[int]
    line_start_line: _containers.RepeatedScalarFieldContainer[int]
    stack_depth: _containers.RepeatedScalarFieldContainer[int]
    stack_frames: _containers.RepeatedScalarFieldContainer[int]
    stack_id: _containers.RepeatedScalarFieldContainer[int]
    context_trace_ids: bytes
    context_span_ids: bytes
    sample_offset_us: _containers.RepeatedScalarFieldContainer[int]
    sample_series: _containers.RepeatedScalarFieldContainer[int]
    sample_pid: _containers.RepeatedScalarFieldContainer[int]
    sample_tid: _containers.RepeatedScalarFieldContainer[int]
    sample_stack: _containers.RepeatedScalarFieldContainer[int]
    sample_context: _containers.RepeatedScalarFieldContainer[int]
    sample_count: _containers.RepeatedScalarFieldContainer[int]
    sample_value: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, id: _Optional[_Union[_common_pb2.BatchId, _Mapping]] = ..., host_id: _Optional[str] = ..., profile_type: _Optional[str] = ..., start_unix_nano: _Optional[int] = ..., end_unix_nano: _Optional[int] = ..., period: _Optional[int] = ..., published_unix_nano: _Optional[int] = ..., clock_offset_ns: _Optional[int] = ..., activity_complete_unix_nano: _Optional[int] = ..., activity_sequence: _Optional[int] = ..., lost_samples: _Optional[int] = ..., dropped_samples: _Optional[int] = ..., configured_period: _Optional[int] = ..., strings: _Optional[_Iterable[str]] = ..., mappings: _Optional[_Iterable[_Union[_common_pb2.Mapping, _Mapping]]] = ..., series: _Optional[_Iterable[_Union[_common_pb2.Series, _Mapping]]] = ..., location_mapping: _Optional[_Iterable[int]] = ..., location_address: _Optional[_Iterable[int]] = ..., location_function: _Optional[_Iterable[int]] = ..., location_file: _Optional[_Iterable[int]] = ..., location_line: _Optional[_Iterable[int]] = ..., location_line_count: _Optional[_Iterable[int]] = ..., line_function: _Optional[_Iterable[int]] = ..., line_file: _Optional[_Iterable[int]] = ..., line_number: _Optional[_Iterable[int]] = ..., line_start_line: _Optional[_Iterable[int]] = ..., stack_depth: _Optional[_Iterable[int]] = ..., stack_frames: _Optional[_Iterable[int]] = ..., stack_id: _Optional[_Iterable[int]] = ..., context_trace_ids: _Optional[bytes] = ..., context_span_ids: _Optional[bytes] = ..., sample_offset_us: _Optional[_Iterable[int]] = ..., sample_series: _Optional[_Iterable[int]] = ..., sample_pid: _Optional[_Iterable[int]] = ..., sample_tid: _Optional[_Iterable[int]] = ..., sample_stack: _Optional[_Iterable[int]] = ..., sample_context: _Optional[_Iterable[int]] = ..., sample_count: _Optional[_Iterable[int]] = ..., sample_value: _Optional[_Iterable[int]] = ...) -> None: ...
