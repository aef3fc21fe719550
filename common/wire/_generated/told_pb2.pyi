from colonnade.common.wire._generated import tensor_pb2 as _tensor_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Labels(_message.Message):
    __slots__ = ("round", "y")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    Y_FIELD_NUMBER: _ClassVar[int]
    round: int
    y: _tensor_pb2.Tensor
    def __init__(self, round: _Optional[int] = ..., y: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class Beliefs(_message.Message):
    __slots__ = ("round", "y")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    Y_FIELD_NUMBER: _ClassVar[int]
    round: int
    y: _tensor_pb2.Tensor
    def __init__(self, round: _Optional[int] = ..., y: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class Targets(_message.Message):
    __slots__ = ("round", "y")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    Y_FIELD_NUMBER: _ClassVar[int]
    round: int
    y: _tensor_pb2.Tensor
    def __init__(self, round: _Optional[int] = ..., y: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...
