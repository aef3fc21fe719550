from colonnade.common.wire._generated import tensor_pb2 as _tensor_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class KeyOffer(_message.Message):
    __slots__ = ("round", "key", "certificate", "signature")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    round: int
    key: _tensor_pb2.Tensor
    certificate: _tensor_pb2.Tensor
    signature: _tensor_pb2.Tensor
    def __init__(self, round: _Optional[int] = ..., key: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., certificate: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., signature: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class KeyRing(_message.Message):
    __slots__ = ("round", "keys", "certificates", "certificate_lengths", "signatures", "signature_lengths", "server")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATES_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_LENGTHS_FIELD_NUMBER: _ClassVar[int]
    SIGNATURES_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_LENGTHS_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    round: int
    keys: _tensor_pb2.Tensor
    certificates: _tensor_pb2.Tensor
    certificate_lengths: _tensor_pb2.Tensor
    signatures: _tensor_pb2.Tensor
    signature_lengths: _tensor_pb2.Tensor
    server: _tensor_pb2.Tensor
    def __init__(self, round: _Optional[int] = ..., keys: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., certificates: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., certificate_lengths: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., signatures: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., signature_lengths: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., server: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class KeyProof(_message.Message):
    __slots__ = ("round", "proofs")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    PROOFS_FIELD_NUMBER: _ClassVar[int]
    round: int
    proofs: _tensor_pb2.Tensor
    def __init__(self, round: _Optional[int] = ..., proofs: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class KeyProofs(_message.Message):
    __slots__ = ("round", "proofs")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    PROOFS_FIELD_NUMBER: _ClassVar[int]
    round: int
    proofs: _tensor_pb2.Tensor
    def __init__(self, round: _Optional[int] = ..., proofs: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...
