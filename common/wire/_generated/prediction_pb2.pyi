from colonnade.common.wire._generated import tensor_pb2 as _tensor_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Ask(_message.Message):
    __slots__ = ("round", "own", "rows")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    OWN_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    round: int
    own: bool
    rows: _tensor_pb2.Tensor
    def __init__(self, round: _Optional[int] = ..., own: _Optional[bool] = ..., rows: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class Averaged(_message.Message):
    __slots__ = ("round", "e")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    E_FIELD_NUMBER: _ClassVar[int]
    round: int
    e: _tensor_pb2.Tensor
    def __init__(self, round: _Optional[int] = ..., e: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class Output(_message.Message):
    __slots__ = ("round", "h")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    H_FIELD_NUMBER: _ClassVar[int]
    round: int
    h: _tensor_pb2.Tensor
    def __init__(self, round: _Optional[int] = ..., h: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...
