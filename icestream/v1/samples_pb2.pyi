from icestream.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SampleBatch(_message.Message):
    __slots__ = ("source", "host_id", "profile_type", "published_unix_nano", "start_unix_milli", "series", "context_trace_ids", "context_span_ids", "operations", "context_operation", "sample_offset_ms", "sample_series", "sample_pid", "sample_tid", "sample_stack_id", "sample_context", "sample_count", "sample_value", "period", "configured_period", "lost_samples", "dropped_samples")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    PROFILE_TYPE_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_UNIX_NANO_FIELD_NUMBER: _ClassVar[int]
    START_UNIX_MILLI_FIELD_NUMBER: _ClassVar[int]
    SERIES_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_TRACE_IDS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_SPAN_IDS_FIELD_NUMBER: _ClassVar[int]
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_OPERATION_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_OFFSET_MS_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_SERIES_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_PID_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_TID_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_STACK_ID_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_COUNT_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_VALUE_FIELD_NUMBER: _ClassVar[int]
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    CONFIGURED_PERIOD_FIELD_NUMBER: _ClassVar[int]
    LOST_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    DROPPED_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    source: _common_pb2.Source
    host_id: str
    profile_type: str
    published_unix_nano: int
    start_unix_milli: int
    series: _containers.RepeatedCompositeFieldContainer[_common_pb2.Series]
    context_trace_ids: bytes
    context_span_ids: bytes
    operations: _containers.RepeatedScalarFieldContainer[str]
    context_operation: _containers.RepeatedScalarFieldContainer[int]
    sample_offset_ms: _containers.RepeatedScalarFieldContainer[int]
    sample_series: _containers.RepeatedScalarFieldContainer[int]
    sample_pid: _containers.RepeatedScalarFieldContainer[int]
    sample_tid: _containers.RepeatedScalarFieldContainer[int]
    sample_stack_id: _containers.RepeatedScalarFieldContainer[int]
    sample_context: _containers.RepeatedScalarFieldContainer[int]
    sample_count: _containers.RepeatedScalarFieldContainer[int]
    sample_value: _containers.RepeatedScalarFieldContainer[int]
    period: int
    configured_period: int
    lost_samples: int
    dropped_samples: int
    def __init__(self, source: _Optional[_Union[_common_pb2.Source, _Mapping]] = ..., host_id: _Optional[str] = ..., profile_type: _Optional[str] = ..., published_unix_nano: _Optional[int] = ..., start_unix_milli: _Optional[int] = ..., series: _Optional[_Iterable[_Union[_common_pb2.Series, _Mapping]]] = ..., context_trace_ids: _Optional[bytes] = ..., context_span_ids: _Optional[bytes] = ..., operations: _Optional[_Iterable[str]] = ..., context_operation: _Optional[_Iterable[int]] = ..., sample_offset_ms: _Optional[_Iterable[int]] = ..., sample_series: _Optional[_Iterable[int]] = ..., sample_pid: _Optional[_Iterable[int]] = ..., sample_tid: _Optional[_Iterable[int]] = ..., sample_stack_id: _Optional[_Iterable[int]] = ..., sample_context: _Optional[_Iterable[int]] = ..., sample_count: _Optional[_Iterable[int]] = ..., sample_value: _Optional[_Iterable[int]] = ..., period: _Optional[int] = ..., configured_period: _Optional[int] = ..., lost_samples: _Optional[int] = ..., dropped_samples: _Optional[int] = ...) -> None: ...
