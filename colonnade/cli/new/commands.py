"""`colonnade new`: a federation with example tables, or a package with a protocol that learns, and its tests."""

from __future__ import annotations

import keyword
import math
import random
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Annotated, Literal, NamedTuple

import typer
import yaml

from colonnade.common.config.privacy import PROPOSED, PROPOSED_DELTA, PROPOSED_EPSILON
from colonnade.common.contracts.registry import NAMES, OUTSIDE
from colonnade.common.crypto.pki.names import SERVER, check_party_name
from colonnade.common.errors import InputError
from colonnade.common.privacy.accounting.accountant import epsilon, find_noise_multiplier
from colonnade.reports.console.outputs import csv_text, make_folder, write_text
from colonnade.reports.console.screen import out as console

_TEMPLATES = Path(__file__).parent / "templates"


def fill(template: str, **words: str) -> str:
    """Replaces a template's `$word`s."""
    return Template((_TEMPLATES / template).read_text(encoding="utf-8")).substitute(words)


def refuse_existing(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if folder.exists() or folder.is_symlink():
        what = "is not empty" if folder.is_dir() else "is a file"
        raise InputError(f"{folder} {what}", hint="name a new folder; nothing is overwritten")


def write_folder(folder: Path, files: Mapping[str, str]) -> None:
    """Writes the files into a new folder and prints their names; writes nothing if the folder is not empty."""
    refuse_existing(folder)
    make_folder(folder)
    for name, text in files.items():
        write_text(folder / name, text)
        console.say(f"{folder / name}")


KEY = "person"
_PERSONS, _COMMON, _ASKED = 2400, 0.6, 40  # persons, share known to every member, number of ids to predict
_MOST = 16  # parties
_REGIONS = {"north": -0.6, "south": 0.0, "west": 0.6}
_NOISE = 0.5  # label noise, in standard deviations of the columns' contribution

Align = Literal["psi", "sorted", "none"]


class _Row(NamedTuple):
    """A party's columns of one person, and its contribution to the label."""

    amount: str
    visits: str
    region: str
    part: float


def federation(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="new folder", show_default=False)],
    parties: Annotated[str, typer.Option(metavar="NAME,NAME", help="names of the parties")] = "bank,clinic",
    align: Annotated[Align, typer.Option(help="alignment of the members' rows")] = "psi",
) -> None:
    """A configuration with example tables, one for each member, and ids to predict."""
    names = [name.strip() for name in parties.split(",")]
    _check(names)
    tables, ids = _tables(names, align)
    about = {
        "id": yaml.safe_dump(folder.resolve().name or "federation").splitlines()[0],
        "parties": yaml.safe_dump(names, default_flow_style=True, width=1000).strip(),
        "align": align,
        "count": str(len(names)),
        "person": f"{_person_epsilon(len(names)):.1f}",
        "privacy": PROPOSED,
        "sections": "\n".join(f"  {_quoted(name)}:\n    data: {{path: {name}.csv}}" for name in names),
    }
    readme = fill(
        "readme_federation.txt", folder=shlex.quote(str(folder)), first=names[0], tables=", ".join(map(_file, names))
    )
    write_folder(
        folder,
        {
            "federation.yaml": fill("federation.txt", **about),
            **tables,
            "ids.csv": csv_text([[KEY], *([key] for key in ids)]),
            "README.md": readme,
        },
    )
    console.point("next", f"colonnade up {folder / 'federation.yaml'}")


def _person_epsilon(parties: int) -> float:
    """Epsilon of a person present at all parties, whose releases add up, if each has the proposed epsilon."""
    sigma = find_noise_multiplier(PROPOSED_EPSILON, PROPOSED_DELTA, 1, "row")
    return epsilon(parties, sigma, PROPOSED_DELTA, "row")


def _check(names: Sequence[str]) -> None:
    if len(names) > _MOST:
        raise InputError(f"--parties: {len(names)} names, expected at most {_MOST}", hint="add more to the file")
    for place, name in enumerate(names):
        check_party_name(name)
        if name == "ids":
            raise InputError("--parties: 'ids' is the name of the file with the ids to predict", hint="choose another")
        if name in names[:place]:
            raise InputError(f"--parties: {name!r} is listed twice", hint="give each party its own name")


def _tables(names: Sequence[str], align: Align) -> tuple[dict[str, str], list[str]]:
    """The members' files by name, and the ids to predict."""
    draw = random.Random(5)  # noqa: S311  # example data
    keys = [f"p{number:04}" for number in draw.sample(range(10_000), _PERSONS)]
    rows = {name: {key: _row(draw) for key in keys} for name in names}
    total = {key: sum(rows[name][key].part for name in names) for key in keys}
    spread = _NOISE * math.sqrt(sum(part**2 for part in total.values()) / _PERSONS)
    labels = {key: int(part + draw.gauss(0, spread) > 0) for key, part in total.items()}

    def held() -> list[str]:
        if align != "psi":
            return keys if align == "none" else draw.sample(keys, _PERSONS)
        return draw.sample(keys, round(_PERSONS * _COMMON ** (1 / (len(names) + 1))))

    files = {_file(SERVER): csv_text([[KEY, "label"], *([key, str(labels[key])] for key in held())])}
    known = set(keys)
    for name in names:
        own = held()
        known &= set(own)
        files[_file(name)] = csv_text(
            [[KEY, "amount", "visits", "region"], *([key, *rows[name][key][:3]] for key in own)]
        )
    return files, sorted(known) if align == "sorted" else draw.sample(sorted(known), _ASKED)


def _row(draw: random.Random) -> _Row:
    amount, visits, region = draw.gauss(0, 1), draw.randrange(12), draw.choice(list(_REGIONS))
    part = amount - 0.2 * (visits - 5.5) + _REGIONS[region]
    return _Row(f"{1000 * math.exp(0.5 * amount):.2f}", str(visits), region, part)


def _file(member: str) -> str:
    return f"{member}.csv"


def _quoted(name: str) -> str:
    return str(yaml.safe_dump(name)).splitlines()[0]


_LONGEST = 40  # characters of a name

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)
app.command()(federation)


@app.command()
def protocol(
    name: Annotated[str, typer.Argument(help="a Python identifier in lower case", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="folder; default: colonnade-NAME", show_default=False),
    ] = None,
) -> None:
    """A package with a protocol that learns, and its tests."""
    _check_protocol_name(name)
    package = f"colonnade-{name.replace('_', '-')}"
    folder, module = out or Path(package), f"colonnade_{name}"
    words = {"name": name, "package": package, "module": module, "title": name.replace("_", " ").capitalize()}
    files = {
        f"{module}.py": "protocol.txt",
        f"test_{name}.py": "test.txt",
        "pyproject.toml": "pyproject.txt",
        "federation.yaml": "digits.txt",
        "README.md": "readme_protocol.txt",
    }
    write_folder(folder, {path: fill(template, **words) for path, template in files.items()})
    console.point("next", f"cd {folder} && pip install -e '.[test]' && pytest")


def _check_protocol_name(name: str) -> None:
    plain = name.isascii() and name.isidentifier() and name == name.lower() and not keyword.iskeyword(name)
    if not plain or name.startswith("_") or name.endswith("_") or "__" in name or len(name) > _LONGEST:
        raise InputError(
            f"{name[:80]!r} is not a name for a protocol",
            hint=f"use a Python identifier of at most {_LONGEST} of a-z, 0-9 and _, which begins with a letter",
        )
    if name in NAMES or name in OUTSIDE.entries:
        raise InputError(f"there is a protocol {name!r} already", hint="choose another name")
