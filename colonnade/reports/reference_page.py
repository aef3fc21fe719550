"""Generates the tables of docs/configuration.md, and docs/openapi.json (`make reference`)."""

from __future__ import annotations

import json
from pathlib import Path

from colonnade.common.contracts.registry import NAMES
from colonnade.common.parsing.reference import LEFT_OUT, REQUIRED, KeyEntry, SectionEntry, sections
from colonnade.server.prediction.serving.openapi import document

ROOT = Path(__file__).resolve().parents[2]
PAGE, OPENAPI = Path("docs/configuration.md"), Path("docs/openapi.json")

MARK = "<!-- Generated below this line: `make reference`. -->\n"


def tables() -> str:
    """Tables of all sections and keys in Markdown, without protocols of other packages."""
    parts = [_section(one) for one in sections() if one.path != "federation.protocol" or one.kind in NAMES]
    return "\n".join(parts)


def page(text: str) -> str:
    """Replaces the tables of the page. Raises ValueError if it has no mark."""
    head, mark, _ = text.partition(MARK)
    if not mark:
        raise ValueError(f"{PAGE} has no line {MARK.strip()}")
    return head + MARK + "\n" + tables()


def openapi() -> str:
    return json.dumps(document(), indent=2) + "\n"


def main() -> None:
    (ROOT / PAGE).write_text(page((ROOT / PAGE).read_text(encoding="utf-8")), encoding="utf-8")
    (ROOT / OPENAPI).write_text(openapi(), encoding="utf-8")


def _section(section: SectionEntry) -> str:
    title = f"`{section.path}`" if section.path else "The file"
    title += f": `{section.kind}`" if section.kind else ""
    lines = [f"### {title}", "", section.about]
    if section.elsewhere:
        lines += ["", "Also in " + ", ".join(f"`{path}`" for path in section.elsewhere) + "."]
    lines += ["", "| key | type | default | meaning |", "|---|---|---|---|"]
    return "\n".join([*lines, *map(_row, section.keys)]) + "\n"


def _row(key: KeyEntry) -> str:
    default = key.default if key.default in (REQUIRED, LEFT_OUT) else f"`{key.default}`"
    cells = (f"`{key.name}`", key.type, default, key.meaning)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    main()
