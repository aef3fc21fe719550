from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Tensor(_message.Message):
    __slots__ = ("dtype", "shape", "data", "bits", "low", "high", "form", "lows", "highs", "places", "mean")
    class Dtype(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DTYPE_UNSPECIFIED: _ClassVar[Tensor.Dtype]
        FLOAT16: _ClassVar[Tensor.Dtype]
        FLOAT32: _ClassVar[Tensor.Dtype]
        FLOAT64: _ClassVar[Tensor.Dtype]
        INT32: _ClassVar[Tensor.Dtype]
        INT64: _ClassVar[Tensor.Dtype]
        UINT8: _ClassVar[Tensor.Dtype]
    DTYPE_UNSPECIFIED: Tensor.Dtype
    FLOAT16: Tensor.Dtype
    FLOAT32: Tensor.Dtype
    FLOAT64: Tensor.Dtype
    INT32: Tensor.Dtype
    INT64: Tensor.Dtype
    UINT8: Tensor.Dtype
    class Form(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ENTRIES: _ClassVar[Tensor.Form]
        COLUMNS: _ClassVar[Tensor.Form]
        LARGEST: _ClassVar[Tensor.Form]
        SIGNS: _ClassVar[Tensor.Form]
        SYMMETRIC: _ClassVar[Tensor.Form]
    ENTRIES: Tensor.Form
    COLUMNS: Tensor.Form
    LARGEST: Tensor.Form
    SIGNS: Tensor.Form
    SYMMETRIC: Tensor.Form
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    BITS_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    FORM_FIELD_NUMBER: _ClassVar[int]
    LOWS_FIELD_NUMBER: _ClassVar[int]
    HIGHS_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    MEAN_FIELD_NUMBER: _ClassVar[int]
    dtype: Tensor.Dtype
    shape: _containers.RepeatedScalarFieldContainer[int]
    data: bytes
    bits: int
    low: float
    high: float
    form: Tensor.Form
    lows: bytes
    highs: bytes
    places: bytes
    mean: float
    def __init__(self, dtype: _Optional[_Union[Tensor.Dtype, str]] = ..., shape: _Optional[_Iterable[int]] = ..., data: _Optional[bytes] = ..., bits: _Optional[int] = ..., low: _Optional[float] = ..., high: _Optional[float] = ..., form: _Optional[_Union[Tensor.Form, str]] = ..., lows: _Optional[bytes] = ..., highs: _Optional[bytes] = ..., places: _Optional[bytes] = ..., mean: _Optional[float] = ...) -> None: ...
