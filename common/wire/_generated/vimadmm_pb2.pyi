from colonnade.common.wire._generated import tensor_pb2 as _tensor_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Embedding(_message.Message):
    __slots__ = ("round", "h")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    H_FIELD_NUMBER: _ClassVar[int]
    round: int
    h: _tensor_pb2.Tensor
    def __init__(self, round: _Optional[int] = ..., h: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class Update(_message.Message):
    __slots__ = ("round", "dual", "residual", "head")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    DUAL_FIELD_NUMBER: _ClassVar[int]
    RESIDUAL_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    round: int
    dual: _tensor_pb2.Tensor
    residual: _tensor_pb2.Tensor
    head: _tensor_pb2.Tensor
    def __init__(self, round: _Optional[int] = ..., dual: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., residual: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., head: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class Evaluation(_message.Message):
    __slots__ = ("round", "part", "block", "h")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    H_FIELD_NUMBER: _ClassVar[int]
    round: int
    part: str
    block: int
    h: _tensor_pb2.Tensor
    def __init__(self, round: _Optional[int] = ..., part: _Optional[str] = ..., block: _Optional[int] = ..., h: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...
