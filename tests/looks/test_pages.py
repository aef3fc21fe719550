"""Every page in a real browser, at the widths of a phone, a tablet, a screen and paper, light and dark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.looks.examples import Example, make_pages
from tests.looks.outline import OUTLINE, SHOWN, outline
from tests.looks.site import build_site
from tests.support.browser import Browser

pytestmark = [pytest.mark.browser, pytest.mark.slow]

HERE = Path(__file__).parent
AUDIT, CONTRAST = ((HERE / name).read_text(encoding="utf-8") for name in ("audit.js", "contrast.js"))
WIDTHS = {"phone": 390, "tablet": 768, "screen": 1280, "paper": 688}
"""In pixels; paper is A4 without margins of 14 mm."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Example]:
    return make_pages(tmp_path_factory.mktemp("looks"))


def test_nothing_is_cut_and_everything_is_named(browser: Browser, pages: list[Example]) -> None:
    faults = []
    for example in pages:
        for name, width in WIDTHS.items():
            browser.open(example.page, width, script=name != "paper", paper=name == "paper")
            faults += [f"{example.name}, {name}: {fault}" for fault in browser.value(AUDIT)]
        assert example.page.stat().st_size < 300_000, example.name
    assert not faults, "\n".join(faults)
    assert browser.console == []


OF_MARKDOWN = ("a table has no caption", "a th has no scope")
"""What Markdown has no words for."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return build_site(tmp_path_factory.mktemp("site"))


def test_the_site_is_as_good(browser: Browser, site: list[Path]) -> None:
    """What surrounds an article, which comes with the theme, is looked at for contrast alone; wide tables scroll."""
    faults = []
    for page in site:
        for width in (390, 768, 1280):
            browser.open(page, width)
            found = [fault for fault in browser.value(AUDIT) if not fault.startswith(OF_MARKDOWN)]
            faults += [f"{page.stem}, {width}: {fault}" for fault in found]
        for scheme in ("default", "slate"):
            browser.value(f"document.body.setAttribute('data-md-color-scheme', '{scheme}')")
            browser.value("new Promise((done) => { setTimeout(done, 400) })")  # colours fade
            ratio, words = browser.value(CONTRAST)
            faults += [f"{page.stem}, {scheme}: contrast {ratio:.2f} of {words.strip()}"] if ratio < 4.5 else []
    assert not faults, "\n".join(faults)


FIRST_SCREEN = """(() => [...document.querySelectorAll("main p, main h2, main h3, main th, main td, main li, text")]
  .filter((e) => e.getClientRects().length && e.getBoundingClientRect().bottom <= innerHeight)
  .map((e) => e.textContent.trim()).join(" | "))()"""
QUESTIONS = {
    "which party is worth its cost": (
        "explanation",
        r"\w+ is worth most: .*of the bytes|No party's loss can be told from chance|add nothing told from chance",
    ),
    "is this model better than none": ("report", r"Accuracy \d\d\.\d% on \d+ test rows .* always '\w+' has \d\d\.\d%"),
    "which of them to take": ("comparison", r"Take \w+: .* better than always the commonest class"),
    "who sees what": ("report", r"The server sees every party's embeddings .*in the clear"),
    "why did it stop": ("report", r"Stopped early \| because validation accuracy was no better in \d+ evaluations"),
    "what does this error want": ("report of a failed run", r"Lower the learning rates: `colonnade simulate --resume"),
}


def test_the_first_screen_answers_questions(browser: Browser, pages: list[Example]) -> None:
    by_name = {example.name: example.page for example in pages}
    for question, (name, answer) in QUESTIONS.items():
        browser.open(by_name[name], 1280, 800)
        assert re.search(answer, shown := browser.value(FIRST_SCREEN)), f"{question}: {shown}"


def test_pictures_of_the_docs_show_pages_of_today(browser: Browser, pages: list[Example]) -> None:
    built = {}
    for example in (each for each in pages if each.name in SHOWN):
        browser.open(example.page, 1280)
        built[example.name] = outline(browser)
    assert built == json.loads(OUTLINE.read_text(encoding="utf-8")), "python -m tests.looks makes them anew"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_text_contrasts_with_its_background(browser: Browser, pages: list[Example], dark: bool) -> None:
    for example in pages:
        browser.open(example.page, 1280, dark=dark)
        browser.value("document.querySelectorAll('details').forEach((e) => { e.open = true })")
        ratio, words = browser.value(CONTRAST)
        assert 4.5 <= ratio < 21.1, f"{example.name}: {words}"


FAULTS = {
    "document.querySelector('.headline').style.cssText = 'white-space: nowrap; overflow: hidden'": "is cut",
    "document.querySelector('table.facts').style.minWidth = '2000px'": "leaves the page",
    "document.querySelector('svg[role=img] title').textContent = ''": "a picture has no title",
    "document.querySelector('svg text').setAttribute('x', -90)": "text is cut in a picture",
    "document.querySelector('h2').outerHTML = '<h4>deep</h4>'": "h4 after h1",
    "document.querySelector('caption').remove()": "a table has no caption",
}


def test_the_audit_finds_faults(browser: Browser, pages: list[Example]) -> None:
    for broken, fault in FAULTS.items():
        browser.open(pages[0].page, 1280)
        browser.value(broken)
        assert any(fault in found for found in browser.value(AUDIT)), fault
