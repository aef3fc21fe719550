from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Frame(_message.Message):
    __slots__ = ("session", "parcels")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    PARCELS_FIELD_NUMBER: _ClassVar[int]
    session: int
    parcels: _containers.RepeatedCompositeFieldContainer[Parcel]
    def __init__(self, session: _Optional[int] = ..., parcels: _Optional[_Iterable[_Union[Parcel, _Mapping]]] = ...) -> None: ...

class Parcel(_message.Message):
    __slots__ = ("hello", "welcome", "refusal", "begin", "open", "close", "letter", "farewell", "failure", "save", "saved", "rewind", "spent", "statement", "relayed", "preparing")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    LETTER_FIELD_NUMBER: _ClassVar[int]
    FAREWELL_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    SAVE_FIELD_NUMBER: _ClassVar[int]
    SAVED_FIELD_NUMBER: _ClassVar[int]
    REWIND_FIELD_NUMBER: _ClassVar[int]
    SPENT_FIELD_NUMBER: _ClassVar[int]
    STATEMENT_FIELD_NUMBER: _ClassVar[int]
    RELAYED_FIELD_NUMBER: _ClassVar[int]
    PREPARING_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    welcome: Welcome
    refusal: Refusal
    begin: Begin
    open: Open
    close: Close
    letter: Letter
    farewell: Farewell
    failure: Failure
    save: Save
    saved: Saved
    rewind: Rewind
    spent: Spent
    statement: Statement
    relayed: Relayed
    preparing: Preparing
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., welcome: _Optional[_Union[Welcome, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ..., begin: _Optional[_Union[Begin, _Mapping]] = ..., open: _Optional[_Union[Open, _Mapping]] = ..., close: _Optional[_Union[Close, _Mapping]] = ..., letter: _Optional[_Union[Letter, _Mapping]] = ..., farewell: _Optional[_Union[Farewell, _Mapping]] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., save: _Optional[_Union[Save, _Mapping]] = ..., saved: _Optional[_Union[Saved, _Mapping]] = ..., rewind: _Optional[_Union[Rewind, _Mapping]] = ..., spent: _Optional[_Union[Spent, _Mapping]] = ..., statement: _Optional[_Union[Statement, _Mapping]] = ..., relayed: _Optional[_Union[Relayed, _Mapping]] = ..., preparing: _Optional[_Union[Preparing, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("party", "federation", "version", "wire", "config", "rows", "official_test", "run", "held", "aligned")
    class ConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PARTY_FIELD_NUMBER: _ClassVar[int]
    FEDERATION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WIRE_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    OFFICIAL_TEST_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    ALIGNED_FIELD_NUMBER: _ClassVar[int]
    party: str
    federation: str
    version: str
    wire: int
    config: _containers.ScalarMap[str, str]
    rows: int
    official_test: int
    run: str
    held: _containers.RepeatedScalarFieldContainer[int]
    aligned: str
    def __init__(self, party: _Optional[str] = ..., federation: _Optional[str] = ..., version: _Optional[str] = ..., wire: _Optional[int] = ..., config: _Optional[_Mapping[str, str]] = ..., rows: _Optional[int] = ..., official_test: _Optional[int] = ..., run: _Optional[str] = ..., held: _Optional[_Iterable[int]] = ..., aligned: _Optional[str] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("reason", "hint")
    REASON_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    reason: str
    hint: str
    def __init__(self, reason: _Optional[str] = ..., hint: _Optional[str] = ...) -> None: ...

class Begin(_message.Message):
    __slots__ = ("session", "parties", "run", "round", "aligned", "backed_off")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    PARTIES_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ALIGNED_FIELD_NUMBER: _ClassVar[int]
    BACKED_OFF_FIELD_NUMBER: _ClassVar[int]
    session: int
    parties: _containers.RepeatedScalarFieldContainer[str]
    run: str
    round: int
    aligned: str
    backed_off: int
    def __init__(self, session: _Optional[int] = ..., parties: _Optional[_Iterable[str]] = ..., run: _Optional[str] = ..., round: _Optional[int] = ..., aligned: _Optional[str] = ..., backed_off: _Optional[int] = ...) -> None: ...

class Open(_message.Message):
    __slots__ = ("round",)
    ROUND_FIELD_NUMBER: _ClassVar[int]
    round: int
    def __init__(self, round: _Optional[int] = ...) -> None: ...

class Close(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Save(_message.Message):
    __slots__ = ("round", "keep", "best", "model")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    BEST_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    round: int
    keep: int
    best: int
    model: int
    def __init__(self, round: _Optional[int] = ..., keep: _Optional[int] = ..., best: _Optional[int] = ..., model: _Optional[int] = ...) -> None: ...

class Saved(_message.Message):
    __slots__ = ("round", "error")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    round: int
    error: str
    def __init__(self, round: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class Spent(_message.Message):
    __slots__ = ("releases",)
    RELEASES_FIELD_NUMBER: _ClassVar[int]
    releases: float
    def __init__(self, releases: _Optional[float] = ...) -> None: ...

class Preparing(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Statement(_message.Message):
    __slots__ = ("party", "body", "certificate", "signature")
    PARTY_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    party: str
    body: bytes
    certificate: bytes
    signature: bytes
    def __init__(self, party: _Optional[str] = ..., body: _Optional[bytes] = ..., certificate: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Relayed(_message.Message):
    __slots__ = ("bodies", "parties", "places", "certificates", "signatures")
    BODIES_FIELD_NUMBER: _ClassVar[int]
    PARTIES_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATES_FIELD_NUMBER: _ClassVar[int]
    SIGNATURES_FIELD_NUMBER: _ClassVar[int]
    bodies: _containers.RepeatedScalarFieldContainer[bytes]
    parties: _containers.RepeatedScalarFieldContainer[str]
    places: _containers.RepeatedScalarFieldContainer[int]
    certificates: _containers.RepeatedScalarFieldContainer[bytes]
    signatures: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, bodies: _Optional[_Iterable[bytes]] = ..., parties: _Optional[_Iterable[str]] = ..., places: _Optional[_Iterable[int]] = ..., certificates: _Optional[_Iterable[bytes]] = ..., signatures: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Rewind(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Letter(_message.Message):
    __slots__ = ("kind", "body")
    KIND_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    kind: str
    body: bytes
    def __init__(self, kind: _Optional[str] = ..., body: _Optional[bytes] = ...) -> None: ...

class Farewell(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Failure(_message.Message):
    __slots__ = ("party", "reason", "hint")
    PARTY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    party: str
    reason: str
    hint: str
    def __init__(self, party: _Optional[str] = ..., reason: _Optional[str] = ..., hint: _Optional[str] = ...) -> None: ...
