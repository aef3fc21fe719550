from colonnade.common.wire._generated import tensor_pb2 as _tensor_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Pair(_message.Message):
    __slots__ = ("round", "turn", "h", "perturbed")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    H_FIELD_NUMBER: _ClassVar[int]
    PERTURBED_FIELD_NUMBER: _ClassVar[int]
    round: int
    turn: int
    h: _tensor_pb2.Tensor
    perturbed: _tensor_pb2.Tensor
    def __init__(self, round: _Optional[int] = ..., turn: _Optional[int] = ..., h: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., perturbed: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class Difference(_message.Message):
    __slots__ = ("round", "slope")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    SLOPE_FIELD_NUMBER: _ClassVar[int]
    round: int
    slope: _tensor_pb2.Tensor
    def __init__(self, round: _Optional[int] = ..., slope: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

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
