from icestream.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ActivityBatch(_message.Message):
    __slots__ = ("id", "host_id", "complete_unix_nano", "published_unix_nano", "start_unix_nano", "clock_offset_ns", "dropped", "strings", "context_trace_ids", "context_span_ids", "context_entry_span_ids", "context_operation", "interval_start_offset_ns", "interval_duration_ns", "interval_thread_cpu_ns", "interval_pid", "interval_tid", "interval_context", "interval_service", "interval_labels", "spans")
    ID_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_UNIX_NANO_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_UNIX_NANO_FIELD_NUMBER: _ClassVar[int]
    START_UNIX_NANO_FIELD_NUMBER: _ClassVar[int]
    CLOCK_OFFSET_NS_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    STRINGS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_TRACE_IDS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_SPAN_IDS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_ENTRY_SPAN_IDS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_OPERATION_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_START_OFFSET_NS_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_DURATION_NS_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_THREAD_CPU_NS_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_PID_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_TID_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_SERVICE_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_LABELS_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    id: _common_pb2.BatchId
    host_id: str
    complete_unix_nano: int
    published_unix_nano: int
    start_unix_nano: int
    clock_offset_ns: int
    dropped: int
    strings: _containers.RepeatedScalarFieldContainer[str]
    context_trace_ids: bytes
    context_span_ids: bytes
    context_entry_span_ids: bytes
    context_operation: _containers.RepeatedScalarFieldContainer[int]
    interval_start_offset_ns: _containers.RepeatedScalarFieldContainer[int]
    interval_duration_ns: _containers.RepeatedScalarFieldContainer[int]
    interval_thread_cpu_ns: _containers.RepeatedScalarFieldContainer[int]
    interval_pid: _containers.RepeatedScalarFieldContainer[int]
    interval_tid: _containers.RepeatedScalarFieldContainer[int]
    interval_context: _containers.RepeatedScalarFieldContainer[int]
    interval_service: _containers.RepeatedScalarFieldContainer[int]
    interval_labels: _containers.RepeatedScalarFieldContainer[int]
    spans: _containers.RepeatedCompositeFieldContainer[Span]
    def __init__(self, id: _Optional[_Union[_common_pb2.BatchId, _Mapping]] = ..., host_id: _Optional[str] = ..., complete_unix_nano: _Optional[int] = ..., published_unix_nano: _Optional[int] = ..., start_unix_nano: _Optional[int] = ..., clock_offset_ns: _Optional[int] = ..., dropped: _Optional[int] = ..., strings: _Optional[_Iterable[str]] = ..., context_trace_ids: _Optional[bytes] = ..., context_span_ids: _Optional[bytes] = ..., context_entry_span_ids: _Optional[bytes] = ..., context_operation: _Optional[_Iterable[int]] = ..., interval_start_offset_ns: _Optional[_Iterable[int]] = ..., interval_duration_ns: _Optional[_Iterable[int]] = ..., interval_thread_cpu_ns: _Optional[_Iterable[int]] = ..., interval_pid: _Optional[_Iterable[int]] = ..., interval_tid: _Optional[_Iterable[int]] = ..., interval_context: _Optional[_Iterable[int]] = ..., interval_service: _Optional[_Iterable[int]] = ..., interval_labels: _Optional[_Iterable[int]] = ..., spans: _Optional[_Iterable[_Union[Span, _Mapping]]] = ...) -> None: ...

class Span(_message.Message):
    __slots__ = ("trace_id", "span_id", "parent_span_id", "name", "service", "start_unix_nano", "end_unix_nano", "operation", "status", "labels")
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    SPAN_ID_FIELD_NUMBER: _ClassVar[int]
    PARENT_SPAN_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    START_UNIX_NANO_FIELD_NUMBER: _ClassVar[int]
    END_UNIX_NANO_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    trace_id: bytes
    span_id: bytes
    parent_span_id: bytes
    name: str
    service: str
    start_unix_nano: int
    end_unix_nano: int
    operation: str
    status: int
    labels: str
    def __init__(self, trace_id: _Optional[bytes] = ..., span_id: _Optional[bytes] = ..., parent_span_id: _Optional[bytes] = ..., name: _Optional[str] = ..., service: _Optional[str] = ..., start_unix_nano: _Optional[int] = ..., end_unix_nano: _Optional[int] = ..., operation: _Optional[str] = ..., status: _Optional[int] = ..., labels: _Optional[str] = ...) -> None: ...
