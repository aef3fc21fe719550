"""Readers of certificates, requests, keys, revocation lists, signatures and sealed boxes."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from colonnade.client.transcript.receipts import Receipts
from colonnade.client.transcript.statement import WindowStatement
from colonnade.common.crypto.group import ELEMENT, Secret, check_elements
from colonnade.common.crypto.pki import certificates, revocation
from colonnade.common.crypto.pki.authority import make_federation, make_request, read_request
from colonnade.common.crypto.pki.identity import load_identity, new_key, parse_key, signed_by
from colonnade.common.crypto.sealing import Agreement, Offer, Session, TranscriptError
from colonnade.common.errors import ColonnadeError
from tests.fuzz.engine import Broken, Case, Target
from tests.fuzz.mutations.pem import mutate_pem
from tests.fuzz.mutations.plain import mutate_bytes
from tests.fuzz.mutations.trees import mutate_json
from tests.fuzz.targets.place import Place


@cache
def _federation() -> Path:
    folder = Place("identities-seed").hold({})
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "certs").exists():
        make_federation(folder / "certs", ["ada", "bob"], ["fl.example.org", "10.0.0.7"])
    return folder / "certs"


def _certificates() -> list[Case]:
    names = ("ada", "server", "ca")
    return [Case("certificate", (_federation() / name / "cert.pem").read_bytes()) for name in names]


def _read_certificates() -> Callable[[str, bytes], object]:
    authority = certificates.read_certificate((_federation() / "ca" / "cert.pem").read_bytes())
    now = datetime.datetime.now(datetime.UTC)

    def read(_variant: str, data: bytes) -> object:
        found = certificates.read_certificates(data)
        for each in found:
            card = certificates.describe(each)
            if not all(word.isprintable() for word in (card.subject, card.issuer, *card.hosts)):
                raise Broken(f"{card}")
            certificates.is_authority(each)
            signed_by(each, authority)
            certificates.fingerprint(each)
            certificates.name_of(each)
            certificates.check_validity(each, "this", now, hint="")
        return found

    return read


def _requests() -> list[Case]:
    key = new_key()
    return [Case("", make_request(key, "ada")), Case("", make_request(key, "server", ["fl.example.org", "10.0.0.7"]))]


def _lists() -> list[Case]:
    pem = (_federation() / "ada" / "cert.pem").read_bytes()
    entry = revocation.entry_for(pem, "lost", "2026-03-01T12:00:00+00:00")
    return [Case("", revocation.text({entry.fingerprint: entry})), Case("", revocation.text({}))]


def _read_lists() -> Callable[[str, bytes], object]:
    place = Place("revocations")

    def read(_variant: str, data: bytes) -> object:
        path = place.hold({"list.json": data}) / "list.json"
        found = revocation.RevocationList(path)
        found.reason("sha256:" + "ab" * 32)
        found.refresh()
        return found

    return read


# What a server forwards between parties.


_PARTS = ("key", "certificate", "signature", "told")


@cache
def _offer_of_bob() -> Offer:
    return Agreement("bob", Session("f", "r", 1, {}), load_identity(_federation() / "bob")).offer()


def _offers() -> list[Case]:
    return [Case(part, getattr(_offer_of_bob(), part)) for part in _PARTS]


def _read_offers() -> Callable[[str, bytes], object]:
    session, folder = Session("f", "r", 1, {}), _federation()
    ada = Agreement("ada", session, load_identity(folder / "ada"))
    bob, own = _offer_of_bob(), ada.offer()
    pins = {name: certificates.fingerprint((folder / name / "cert.pem").read_bytes()) for name in ("ada", "bob")}
    bob_pin = pins["bob"]

    def read(variant: str, data: bytes) -> object:
        found = ada.meet({"ada": own, "bob": replace(bob, **{variant: data})}, pins)
        if variant in ("key", "told") and data != getattr(bob, variant):
            raise Broken(f"a {variant} that its owner has not signed")
        if variant == "certificate" and certificates.fingerprint(data) != bob_pin:
            raise Broken("a certificate that is not pinned")
        return found

    return read


def _statements() -> list[Case]:
    told = Session("f", "r", 1, {}).told()
    entries, receipts = {"Update": {3: "ab" * 16}}, {"exchanges": [[3, "0", "6"]], "boxes": {"ada": [1, "cd" * 32]}}
    whole = WindowStatement(2, True, told, 9, ((1, 4), (6, 9)), entries, receipts, {"bob": "ef" * 60})
    return [Case("", each.encode()) for each in (WindowStatement(0, False, told, 0), whole)]


def _read_statements() -> Callable[[str, bytes], object]:
    def read(_variant: str, data: bytes) -> object:
        statement = WindowStatement.decode(data)
        if WindowStatement.decode(statement.encode()) != statement:
            raise Broken("another statement, once it is written and read again")
        books = Receipts("ada", ("ada", "bob"))
        books.use({"bob": bytes(32)})
        with suppress(TranscriptError):  # a box that was not sent
            books.compare("bob", statement.receipts)
        return statement

    return read


def _boxes() -> list[Case]:
    one = _pair()[0]
    return [Case("", one.seal("bob", b"share of a key", "shares", 3)), Case("", one.seal("bob", b"", "shares", 3))]


@cache
def _pair() -> tuple:
    session = Session("f", "r", 1, {})
    sides = {name: Agreement(name, session, None) for name in ("ada", "bob")}
    offers = {name: side.offer() for name, side in sides.items()}
    ada, bob = (sides[name].meet(offers, {}) for name in ("ada", "bob"))
    return ada.confirm({"bob": bob.proofs()["ada"]}).seals, bob.confirm({"ada": ada.proofs()["bob"]}).seals


def _read_boxes() -> Callable[[str, bytes], object]:
    sealed = {case.data for case in _boxes()}
    seals = _pair()[1]

    def read(_variant: str, data: bytes) -> object:
        content = seals.open("ada", data, "shares", 3)
        if data not in sealed and content not in (b"share of a key", b""):
            raise Broken("a box that nobody sealed")
        return content

    return read


def _read_elements() -> Callable[[str, bytes], object]:
    secret = Secret(b"\x07" * ELEMENT)

    def read(_variant: str, data: bytes) -> object:
        check_elements(data)
        raised = secret.raise_all(data)
        if len(raised) != len(data):
            raise Broken(f"{len(raised)} bytes of {len(data)}")
        return raised

    return read


_ELEMENTS = (
    bytes(32),
    b"\x01" + bytes(31),
    b"\x09" + bytes(31),
    bytes(range(64)),
    b"\xff" * 32,
    b"\xed" + b"\xff" * 30 + b"\x7f",
)

_small = partial(Target, errors=(ColonnadeError,))

TARGETS = (
    _small("certificates", _read_certificates, _certificates, mutate=mutate_pem, count=500),
    _small("requests", lambda: lambda _v, data: read_request(data), _requests, mutate=mutate_pem, count=500),
    _small(
        "keys",
        lambda: lambda _v, data: parse_key(data, "here"),
        lambda: [Case("", (_federation() / "ada" / "key.pem").read_bytes())],
        mutate=mutate_pem,
        count=500,
    ),
    _small("revocations", _read_lists, _lists, mutate=mutate_json, count=500),
    _small("offers", _read_offers, _offers, mutate=mutate_pem, count=500),
    Target("statements", _read_statements, _statements, (ValueError,), mutate_json, count=500),
    _small("boxes", _read_boxes, _boxes, mutate=mutate_bytes, count=650),
    Target(
        "elements", _read_elements, lambda: [Case("", e) for e in _ELEMENTS], (ColonnadeError, ValueError), count=200
    ),
)
