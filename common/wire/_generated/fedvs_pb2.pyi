from colonnade.common.wire._generated import tensor_pb2 as _tensor_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Prepared(_message.Message):
    __slots__ = ("round", "held", "columns")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    round: int
    held: str
    columns: int
    def __init__(self, round: _Optional[int] = ..., held: _Optional[str] = ..., columns: _Optional[int] = ...) -> None: ...

class Preparation(_message.Message):
    __slots__ = ("round", "sharing", "anew", "columns")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    SHARING_FIELD_NUMBER: _ClassVar[int]
    ANEW_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    round: int
    sharing: str
    anew: bool
    columns: _tensor_pb2.Tensor
    def __init__(self, round: _Optional[int] = ..., sharing: _Optional[str] = ..., anew: _Optional[bool] = ..., columns: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class Shares(_message.Message):
    __slots__ = ("round", "stage", "boxes")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    BOXES_FIELD_NUMBER: _ClassVar[int]
    round: int
    stage: int
    boxes: _tensor_pb2.Tensor
    def __init__(self, round: _Optional[int] = ..., stage: _Optional[int] = ..., boxes: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class Bundle(_message.Message):
    __slots__ = ("round", "stage", "boxes", "lengths")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    BOXES_FIELD_NUMBER: _ClassVar[int]
    LENGTHS_FIELD_NUMBER: _ClassVar[int]
    round: int
    stage: int
    boxes: _tensor_pb2.Tensor
    lengths: _tensor_pb2.Tensor
    def __init__(self, round: _Optional[int] = ..., stage: _Optional[int] = ..., boxes: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., lengths: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class Opened(_message.Message):
    __slots__ = ("round", "stage", "senders")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    SENDERS_FIELD_NUMBER: _ClassVar[int]
    round: int
    stage: int
    senders: _tensor_pb2.Tensor
    def __init__(self, round: _Optional[int] = ..., stage: _Optional[int] = ..., senders: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class Senders(_message.Message):
    __slots__ = ("round", "stage", "senders", "signature")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    SENDERS_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    round: int
    stage: int
    senders: _tensor_pb2.Tensor
    signature: _tensor_pb2.Tensor
    def __init__(self, round: _Optional[int] = ..., stage: _Optional[int] = ..., senders: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., signature: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class Answer(_message.Message):
    __slots__ = ("round", "stage", "block", "senders", "h")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    SENDERS_FIELD_NUMBER: _ClassVar[int]
    H_FIELD_NUMBER: _ClassVar[int]
    round: int
    stage: int
    block: int
    senders: str
    h: _tensor_pb2.Tensor
    def __init__(self, round: _Optional[int] = ..., stage: _Optional[int] = ..., block: _Optional[int] = ..., senders: _Optional[str] = ..., h: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class Gradient(_message.Message):
    __slots__ = ("round", "dh")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    DH_FIELD_NUMBER: _ClassVar[int]
    round: int
    dh: _tensor_pb2.Tensor
    def __init__(self, round: _Optional[int] = ..., dh: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...
