from colonnade.common.wire._generated import tensor_pb2 as _tensor_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Logits(_message.Message):
    __slots__ = ("round", "o")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    O_FIELD_NUMBER: _ClassVar[int]
    round: int
    o: _tensor_pb2.Tensor
    def __init__(self, round: _Optional[int] = ..., o: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class Update(_message.Message):
    __slots__ = ("round", "g")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    G_FIELD_NUMBER: _ClassVar[int]
    round: int
    g: _tensor_pb2.Tensor
    def __init__(self, round: _Optional[int] = ..., g: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class Evaluation(_message.Message):
    __slots__ = ("round", "part", "block", "o")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    O_FIELD_NUMBER: _ClassVar[int]
    round: int
    part: str
    block: int
    o: _tensor_pb2.Tensor
    def __init__(self, round: _Optional[int] = ..., part: _Optional[str] = ..., block: _Optional[int] = ..., o: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...
