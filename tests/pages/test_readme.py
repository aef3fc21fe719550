"""README.md and docs/index.md: commands that exist, links that lead somewhere, and output that comes out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer import Context
from typer.main import get_command
from typer.testing import CliRunner

from colonnade.cli.main import app
from tests.cli.run.test_up import finish, start

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
INDEX = (ROOT / "docs/index.md").read_text()
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)
BLOCKS = FENCE.findall(README)


def commands() -> dict[str, bool]:
    """Names of all commands, and whether each is shown in the help."""
    group = get_command(app)
    context = Context(group)
    return {name: not group.get_command(context, name).hidden for name in group.list_commands(context)}


def test_it_begins_with_three_lines_and_a_picture() -> None:
    title, blank, *lines = README.splitlines()
    assert title == "# Colonnade" and not blank and all(lines[:3]) and not lines[3]
    assert lines[4].startswith("![") and "docs/figures/run.svg" in lines[4]


def test_commands_that_it_names_exist() -> None:
    named = {word for kind, text in BLOCKS if not kind for word in re.findall(r"^colonnade ([a-z]+)", text, re.M)}
    assert {"up", "ledger", "tables", "predict"} <= named <= set(commands())
    targets = re.findall(r"^make ([a-z]+)", "".join(text for _, text in BLOCKS), re.M)
    assert targets == ["demo", "test"]
    assert all(re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M) for target in targets)


def test_the_index_lists_every_command() -> None:
    section = INDEX.partition("## Commands\n")[2].partition("\n## ")[0]
    listed = set(re.findall(r"(?<!-)\b([a-z]+(?:-[a-z]+)?)\b", section))
    assert {name for name, shown in commands().items() if shown} <= listed


@pytest.mark.parametrize(
    "page", ["README.md", "docs/index.md", "docs/data_teams.md", "docs/researchers.md", "docs/migration.md"]
)
def test_links_lead_to_files_and_headings(page: str) -> None:
    text = FENCE.sub("", (ROOT / page).read_text())
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert len(links) > 3
    for link in links:
        target, _, anchor = link.partition("#")
        path = (ROOT / page).parent / target if target else ROOT / page
        assert path.exists(), link
        if anchor and path.suffix == ".md":
            headings = re.findall(r"^#+ (.+)$", path.read_text(), re.M)
            assert anchor in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}, link


_DRAWN = ("test accuracy",)  # differs with the members' starts


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Output of the two commands."""
    out = tmp_path_factory.mktemp("readme") / "first"
    said = finish(process := start("up", ROOT / "experiments/split/demo.yaml", "--out", out))
    assert process.returncode == 0, said
    ledger = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["ledger", str(out / "parties/party1")])
    return said, ledger.output


def _cells(text: str) -> set[tuple[str, ...]]:
    """Lines of a table, as cells without spaces around them."""
    lines = (re.split(r"[│┃]", line.strip()) for line in text.splitlines() if line.strip()[:1] in ("│", "┃"))
    return {tuple(cell.strip() for cell in line if cell.strip()) for line in lines}


@pytest.mark.processes
@pytest.mark.parametrize("place", [0, 1])
def test_the_output_that_it_shows_comes_out(first: tuple[str, str], place: int) -> None:
    tables = [text for kind, text in BLOCKS if not kind and "│" in text]
    shown, came = ({cells for cells in _cells(text) if cells[:1] != _DRAWN} for text in (tables[place], first[place]))
    assert len(shown) >= 2 and shown <= came, first[place]


@pytest.mark.processes
def test_the_accuracy_is_in_the_range_that_it_says(first: tuple[str, str]) -> None:
    low, high = map(float, re.findall(r"runs had ([\d.]+) to ([\d.]+) %", README)[0])
    for text in (first[0], README):
        (found,) = (cells[1] for cells in _cells(text) if cells[:1] == _DRAWN)
        assert low - 2 <= float(found.rstrip("%")) <= high + 2  # of a start that was drawn now


@pytest.mark.slow
def test_its_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    (code,) = (text for kind, text in BLOCKS if kind == "python")
    found: dict[str, object] = {}
    exec(code, found)
    accuracy, messages, report = capsys.readouterr().out.split()[-3:]
    # Of a start that was drawn now, and until validation rows gain no more.
    assert float(accuracy) > 0.85 and int(messages) > 100 and Path(report).is_file()


def test_pictures_are_small() -> None:
    assert (ROOT / "docs/figures/report.png").stat().st_size < 250_000
    assert (ROOT / "docs/figures/report.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert "figures/report.png" in INDEX and "docs/figures/report.png" in README
