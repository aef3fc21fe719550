from colonnade.common.wire._generated import tensor_pb2 as _tensor_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Census(_message.Message):
    __slots__ = ("round", "rows")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    round: int
    rows: int
    def __init__(self, round: _Optional[int] = ..., rows: _Optional[int] = ...) -> None: ...

class Sizes(_message.Message):
    __slots__ = ("round", "rows")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    round: int
    rows: _tensor_pb2.Tensor
    def __init__(self, round: _Optional[int] = ..., rows: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class Points(_message.Message):
    __slots__ = ("round", "points")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    round: int
    points: _tensor_pb2.Tensor
    def __init__(self, round: _Optional[int] = ..., points: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class Common(_message.Message):
    __slots__ = ("round", "rows", "number")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    round: int
    rows: int
    number: str
    def __init__(self, round: _Optional[int] = ..., rows: _Optional[int] = ..., number: _Optional[str] = ...) -> None: ...

class Positions(_message.Message):
    __slots__ = ("round", "positions")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    round: int
    positions: _tensor_pb2.Tensor
    def __init__(self, round: _Optional[int] = ..., positions: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class Kept(_message.Message):
    __slots__ = ("round",)
    ROUND_FIELD_NUMBER: _ClassVar[int]
    round: int
    def __init__(self, round: _Optional[int] = ...) -> None: ...

class Settled(_message.Message):
    __slots__ = ("round",)
    ROUND_FIELD_NUMBER: _ClassVar[int]
    round: int
    def __init__(self, round: _Optional[int] = ...) -> None: ...
