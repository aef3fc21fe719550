"""Makes the pictures of the pages in docs/figures, and records how the pages are built.

    python -m tests.looks            pictures of the first screens, at three widths, light and dark
    python -m tests.looks --all DIR  whole pages, for looking at

A test compares the record, pages.json, with the pages of today: where it differs, the pictures are out of date.
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
from pathlib import Path

from PIL import Image

from tests.looks.examples import make_pages
from tests.looks.outline import OUTLINE, SCREENS, SHOWN, outline
from tests.support.browser import Browser

FIGURES = Path(__file__).parents[2] / "docs" / "figures"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.looks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--all", type=Path, metavar="DIR")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, Browser() as browser:
        examples = make_pages(Path(scratch))
        into = given.all or FIGURES / "pages"
        into.mkdir(parents=True, exist_ok=True)
        built = {}
        for example in examples:
            if given.all is None and example.name not in SHOWN:
                continue
            browser.open(example.page, 1280)
            built[example.name] = outline(browser)
            for width, height in SCREENS.values():
                for dark in (False, True):
                    browser.open(example.page, width, height, dark=dark)
                    if given.all is not None:
                        browser.open(
                            example.page, width, browser.value("document.documentElement.scrollHeight"), dark=dark
                        )
                    name = f"{example.name.replace(' ', '-')}-{width}-{'dark' if dark else 'light'}.png"
                    _save(browser.picture(), into / name)
        if given.all is None:
            browser.open(examples[0].page, 1280, 1300)
            _save(browser.picture(), FIGURES / "report.png")
            OUTLINE.write_text(json.dumps(built, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _save(png: bytes, path: Path) -> None:
    """As a PNG of 64 colours, a third of the size."""
    Image.open(io.BytesIO(png)).convert("RGB").quantize(64).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
