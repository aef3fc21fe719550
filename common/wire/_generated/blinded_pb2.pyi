from colonnade.common.wire._generated import tensor_pb2 as _tensor_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Members(_message.Message):
    __slots__ = ("round", "members")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    round: int
    members: _tensor_pb2.Tensor
    def __init__(self, round: _Optional[int] = ..., members: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class Masked(_message.Message):
    __slots__ = ("round", "stage", "words")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    round: int
    stage: int
    words: _tensor_pb2.Tensor
    def __init__(self, round: _Optional[int] = ..., stage: _Optional[int] = ..., words: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...
