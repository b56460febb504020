from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class SymbolRequest(_message.Message):
    __slots__ = ("build_id", "host_id", "file", "attempt", "requested_unix_nano")
    BUILD_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    REQUESTED_UNIX_NANO_FIELD_NUMBER: _ClassVar[int]
    build_id: str
    host_id: str
    file: str
    attempt: int
    requested_unix_nano: int
    def __init__(self, build_id: _Optional[str] = ..., host_id: _Optional[str] = ..., file: _Optional[str] = ..., attempt: _Optional[int] = ..., requested_unix_nano: _Optional[int] = ...) -> None: ...

class SymbolFile(_message.Message):
    __slots__ = ("build_id", "host_id", "version", "error", "uri", "chunk", "chunks", "data", "size", "sha256", "load_address")
    BUILD_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    LOAD_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    build_id: str
    host_id: str
    version: int
    error: str
    uri: str
    chunk: int
    chunks: int
    data: bytes
    size: int
    sha256: str
    load_address: int
    def __init__(self, build_id: _Optional[str] = ..., host_id: _Optional[str] = ..., version: _Optional[int] = ..., error: _Optional[str] = ..., uri: _Optional[str] = ..., chunk: _Optional[int] = ..., chunks: _Optional[int] = ..., data: _Optional[bytes] = ..., size: _Optional[int] = ..., sha256: _Optional[str] = ..., load_address: _Optional[int] = ...) -> None: ...
