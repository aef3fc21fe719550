"""README.md and docs/index.md: first screens that run, commands that exist, links that lead somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer import Context
from typer.main import get_command

from colonnade.cli.main import app
from tests.support.household import colonnade

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


def first_commands(page: str) -> list[str]:
    """Commands of a page's first screen, in order."""
    return [line for kind, text in FENCE.findall(page) if kind == "sh" for line in text.splitlines()]


@pytest.mark.parametrize("page", [README, INDEX], ids=["README", "index"])
def test_the_first_screen_says_what_it_is_installs_it_trains_and_shows_a_report(page: str) -> None:
    title, blank, *lines = page[page.index("# Colonnade") :].splitlines()
    assert title == "# Colonnade" and not blank and all(lines[:4])
    install, *trains = first_commands(page)
    assert install == "pip install ." and [line.split()[1] for line in trains] == ["new", "up", "report"]
    screen = lines[: lines.index("colonnade report run") + 8]
    assert "figures/report.png" in "".join(screen) and not any(line.startswith("|") for line in screen)


@pytest.mark.processes
def test_the_first_commands_train_on_three_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert first_commands(README) == first_commands(INDEX)
    monkeypatch.chdir(tmp_path)
    for line in first_commands(README)[1:]:
        words = shlex.split(line)[1:]
        code, said = colonnade(*words, *(["--set", "federation.epochs=2"] if words[0] == "up" else []))
        assert code == 0, said
    assert len(list(Path("credit").glob("*.csv"))) == 4  # three tables, and ids to predict
    assert Path("run/report.html").is_file()


def test_commands_that_it_names_exist() -> None:
    named = {word for kind, text in BLOCKS if not kind for word in re.findall(r"^colonnade ([a-z]+)", text, re.M)}
    assert {"up", "ledger", "tables", "predict"} <= named <= set(commands())
    targets = re.findall(r"^make ([a-z]+)", "".join(text for _, text in BLOCKS), re.M)
    assert targets == ["demo", "test"]
    assert all(re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M) for target in targets)


def test_the_page_of_commands_has_those_of_the_help_under_its_headings() -> None:
    group = get_command(app)
    context = Context(group)
    helped: dict[str, list[str]] = {}
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if not command.hidden:
            helped.setdefault(command.rich_help_panel, []).append(name)
    sections = (ROOT / "docs/commands.md").read_text().split("\n## ")[1:]
    listed = {
        part.partition("\n")[0]: list(dict.fromkeys(re.findall(r"^\| `colonnade ([\w-]+)", part, re.M)))
        for part in sections
    }
    assert {head: sorted(names) for head, names in listed.items()} == {
        head: sorted(names) for head, names in helped.items()
    }


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/index.md",
        "docs/data_teams.md",
        "docs/researchers.md",
        "docs/migration.md",
        "docs/commands.md",
    ],
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
