"""Files of text are in UTF-8, whatever the locale is; and what a terminal's encoding lacks is printed escaped."""

from __future__ import annotations

import ast
import io
import re
import sys
from pathlib import Path

import pytest

from colonnade.cli.main import main
from colonnade.reports.console import screen
from tests.test_house import sources

_TEXT = re.compile(r"[rwax]\+?t?")
_OTHERS = {"newline", "buffering", "errors"}


def in_the_locales_encoding(call: ast.Call) -> bool:
    """True if the call opens, reads or writes text, as far as can be seen, and does not name an encoding."""
    keys = {key.arg: key.value for key in call.keywords}
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if "encoding" in keys:
        return False
    if name in ("read_text", "write_text"):
        return isinstance(call.func, ast.Attribute)
    if name not in ("open", "fdopen"):
        return False
    modes = [
        node.value
        for part in (*call.args, keys.get("mode"))
        if part
        for node in ast.walk(part)
        if isinstance(node, ast.Constant)
    ]
    if any(isinstance(mode, str) and _TEXT.fullmatch(mode) for mode in modes):
        return True
    return not call.args and bool(keys) and set(keys) <= _OTHERS


def test_every_file_of_text_names_its_encoding() -> None:
    found = [
        f"{path}:{node.lineno}"
        for path, tree in sources().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and in_the_locales_encoding(node)
    ]
    assert not found


def test_the_search_finds_what_it_should() -> None:
    wrong = [
        "p.open('w')",
        "open(p, 'a')",
        "p.read_text()",
        "p.write_text(t)",
        "p.open(newline='')",
        "p.open('r+' if a else 'w')",
        "p.open(mode='w')",
    ]
    right = [
        "p.open('rb')",
        "p.open('w', encoding='utf-8')",
        "tarfile.open(p, 'r:gz')",
        "os.open(p, os.O_RDONLY)",
        "write_text(p, t)",
    ]
    assert all(in_the_locales_encoding(ast.parse(text, mode="eval").body) for text in wrong)  # type: ignore[arg-type]
    assert not any(in_the_locales_encoding(ast.parse(text, mode="eval").body) for text in right)  # type: ignore[arg-type]


def stream(encoding: str, errors: str = "strict") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors=errors)


def printed(to: io.TextIOWrapper) -> str:
    to.seek(0)
    return to.read()


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "koi8-r", "utf-8"])
def test_no_name_is_too_much_for_a_terminal(encoding: str, errors: str) -> None:
    to = stream(encoding, errors)
    console = screen.Screen(file=to, width=200)
    console.print("jä→", "数据", "\udcff", style="bold")
    console.say("✗ :bomb: [bold]")
    said = printed(to)
    assert ":bomb: [bold]" in said and ("✗" if encoding == "utf-8" else "\\u2717") in said and "\\udcff" in said


def test_help_errors_and_tracebacks_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLONNADE_DEBUG", "1")
    for words in (["--help"], ["--version"], ["check", str(tmp_path / "größe→.yaml")], ["größe→"], ["protocols"]):
        out, err = stream("ascii"), stream("ascii")
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", err)
        monkeypatch.setattr(sys, "argv", ["colonnade", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code in (0, 2) and printed(out) + printed(err)


@pytest.mark.parametrize("words", [["check", "\udcff.yaml"], ["up", "--out", "a\udce9"]])
def test_names_in_another_encoding_are_refused(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["colonnade", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2 and "is no text in UTF-8" in capsys.readouterr().err


def _printer(func: ast.expr) -> bool:
    """True for print, typer.echo, typer.secho and click.echo."""
    if isinstance(func, ast.Name):
        return func.id == "print"
    return isinstance(func, ast.Attribute) and func.attr in ("echo", "secho")


def test_text_is_printed_by_a_screen_alone() -> None:
    """Which escapes it. Exceptions: a light probe, and what a package's own command prints of itself."""
    found = {
        path
        for path, tree in sources().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _printer(node.func)
    }
    assert {path for path in found if not path.startswith("benchmarks/")} <= {"colonnade/cli/run/health.py"}, found
