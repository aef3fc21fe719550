"""A few pages of the site, built as the whole is but for docstrings."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("index", "run_folder", "errors", "who_sees_what")
"""The start page, one with pictures in a table, and two of long tables."""


def build_site(folder: Path) -> list[Path]:
    """Builds PAGES, without mkdocs skips the test, and returns their places."""
    mkdocs, build = (pytest.importorskip(f"mkdocs.{name}") for name in ("config", "commands.build"))
    docs, site = folder / "docs", folder / "site"
    docs.mkdir()
    for name in ("site.css", "figures", *(f"{page}.md" for page in PAGES)):
        (docs / name).symlink_to(ROOT / "docs" / name)
    nav = [{"Start": [f"{PAGES[0]}.md"]}, {"Reference": [f"{page}.md" for page in PAGES[1:]]}]
    own = {"docs_dir": str(docs), "site_dir": str(site), "nav": nav, "plugins": ["search"], "strict": False}
    logging.disable(logging.WARNING)  # of links to pages that are not built
    try:
        build.build(mkdocs.load_config(str(ROOT / "mkdocs.yml"), **own))
    finally:
        logging.disable(logging.NOTSET)
    return [site / f"{page}.html" for page in PAGES]
