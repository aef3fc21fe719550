"""A stranger, or a lying server, puts terminal escapes into names and reasons: they never reach a terminal.

Bounds: messages (server, party).
"""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.table import Table

from colonnade.client.dialling.membership import Membership
from colonnade.common.conversation.parcels import Begin, Failure, Hello, Notice, Refusal, Rewind, Saved
from colonnade.common.errors import ContractError, PartyFailed, RefusedError
from colonnade.common.observability.telemetry import Telemetry
from colonnade.common.protocols.split import CONTRACT
from colonnade.common.text import LONGEST, escaped, escaped_lines
from colonnade.common.wire.codec import Codec, WireError
from colonnade.common.wire.frame import pack, unpack
from colonnade.reports.console.progress import PartyProgress, Progress
from colonnade.reports.console.screen import Screen
from tests.server.stage import hello, stage

CODEC = Codec(CONTRACT.kinds)
EVIL = "\x1b]0;owned\x07\x1b[2J\r\nall 4 parties have joined \x7f\x9b31m\u202egnp.\u2066\u2028\u200b\ud83d"[:-1]
SAFE = escaped(EVIL)


def crossed(parcel: Notice) -> Notice:
    (arrived,) = unpack(pack(parcel, 0, CODEC), 0, CODEC)
    assert not isinstance(arrived, str)
    return arrived  # type: ignore[return-value]


def test_nothing_that_a_terminal_obeys_is_left_and_plain_words_stay() -> None:
    assert SAFE.isprintable() and "owned" in SAFE and r"\x1b]0;" in SAFE and r"\r\n" in SAFE and r"\u202e" in SAFE
    for code in (*range(32), 127, *range(128, 160), 0x200E, 0x202A, 0x2066, 0x2069, 0x061C, 0xFEFF, 0xD800):
        assert escaped(chr(code)).isprintable() and len(escaped(chr(code))) > 1
    for plain in ("", "bank", "Größe, λ = 0.1…", "数据", "a 'quoted' \\ word"):
        assert escaped(plain) == plain == escaped_lines(plain)
    assert escaped("x" * (LONGEST + 1)) == "x" * (LONGEST - 1) + "…" and len(escaped("\0" * LONGEST)) == LONGEST
    assert escaped_lines("two\n\tlines\x1b") == "two\n\tlines\\x1b"


@pytest.mark.parametrize(
    "parcel",
    [
        Refusal(EVIL, EVIL),
        Failure(EVIL, EVIL, EVIL),
        Rewind(EVIL),
        Saved(1, EVIL),
        Begin(1, (EVIL, "bob"), EVIL),
        Hello(EVIL, EVIL, EVIL, config={EVIL: EVIL}, run=EVIL, aligned=EVIL),
    ],
)
def test_texts_are_escaped_and_cut_as_they_come_off_the_wire(parcel: Notice) -> None:
    arrived = crossed(parcel)
    said = json.dumps(vars(arrived) if hasattr(arrived, "__dict__") else str(arrived), ensure_ascii=False)
    assert said.isprintable() and "owned" in said
    assert crossed(Refusal("x" * 60_000)) == Refusal("x" * (LONGEST - 1) + "…")
    with pytest.raises(WireError, match="at most 65536 bytes"):
        crossed(Refusal("x" * 10**6))


async def test_a_refusal_is_kept_and_printed_without_them(tmp_path: Path) -> None:
    there = stage()
    await there.come(crossed(Hello(EVIL, "test", "0", config={EVIL: ""})))  # type: ignore[arg-type]
    await there.come(crossed(Hello("ada", EVIL, EVIL, config={EVIL: ""})))  # type: ignore[arg-type]
    ada = await there.come(hello("ada"))
    ada.arrive(crossed(Failure("", EVIL, EVIL)))
    for event in there.events:
        assert all(str(value).isprintable() for value in event.values())
    assert len(there.logged("refused")) == 2 and len(there.logged("failed")) == 1


def test_an_error_quotes_foreign_text_escaped() -> None:
    for error in (RefusedError(EVIL, hint=EVIL), PartyFailed("ada", EVIL), ContractError(EVIL, EVIL, EVIL, "", EVIL)):
        assert str(error).isprintable() and error.hint.isprintable()
    assert str(WireError("a kind", EVIL).of("ada")).isprintable()


def test_an_undeclared_kind_is_quoted_without_them() -> None:
    with pytest.raises(WireError) as refused:
        CODEC.decode(EVIL, memoryview(b""))
    assert str(refused.value.of("ada")).isprintable()


def printed(line: object) -> str:
    shown = io.StringIO()
    screen = Screen(file=shown, force_terminal=True, color_system=None, width=200)
    screen.print(line, markup=False)
    return shown.getvalue()


def test_the_console_prints_none_for_any_input() -> None:
    table = Table()
    table.add_column(EVIL)
    table.add_row(EVIL)
    for said in (printed(EVIL), printed(table)):
        assert "owned" in said and not {"\x1b", "\x07", "\r", "\x7f", "\x9b", "\u202e", "\u2066", "\u2028"} & set(said)


def test_progress_lines_print_none() -> None:
    shown = io.StringIO()
    screen = Screen(file=shown, force_terminal=True, color_system=None, width=200)
    telemetry = Telemetry(None, Progress(screen), PartyProgress(screen, "ada"))
    for kind in ("leave", "refused", "failed", "warning", "checkpoint_failed", "server_away"):
        telemetry.event(kind, party=EVIL, reason=EVIL)
    assert shown.getvalue().count("owned") >= 12 and not {"\x1b", "\x07", "\r", "\x9b", "\u202e"} & set(
        shown.getvalue()
    )


@pytest.mark.real_time
async def test_a_party_stores_a_lying_servers_text_without_them() -> None:
    membership = Membership(CODEC, 1 << 20, Telemetry(None))
    membership._inbox.put(crossed(Refusal(EVIL, EVIL)))
    with pytest.raises(RefusedError) as refused:
        await membership.begin()
    assert str(refused.value).isprintable() and refused.value.hint.isprintable()
