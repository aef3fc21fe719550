"""Pages in a real browser, if one is installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.read.reports import add_parties, leave, page, summary
from tests.support.browser import Browser

pytestmark = pytest.mark.browser

CONFUSION = {"test": {"confusion": [[40, 1], [19, 20]], "reliability": []}}
CONTRAST = (Path(__file__).parents[2] / "looks" / "contrast.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as opened:
        yield opened


def test_a_browser_shows_it(browser: Browser, tmp_path: Path, monkeypatch, capfd) -> None:
    folder = leave(tmp_path / "run")
    add_parties(folder)
    page(monkeypatch, capfd, folder)
    shown = "[...document.querySelectorAll('[data-axis]')].filter((e) => e.offsetHeight).map((e) => e.dataset.axis)"
    points = "[...document.querySelectorAll('polyline')].find((e) => e.getClientRects().length).getAttribute('points')"
    browser.open(folder / "report.html")
    assert browser.value(shown) == ["round", "round"]
    before = browser.value(points)
    browser.value("document.querySelector('input[value=bytes]').click()")
    assert browser.value(shown) == ["bytes", "bytes"] and browser.value(points) == before  # as far apart as rounds
    browser.value("document.querySelector('input[value=bytes]').focus()")
    browser.press("ArrowLeft", 37)
    assert browser.value(shown) == ["seconds", "seconds"] and browser.value(points) != before
    box = browser.value("(({x, y, width}) => ({x, y, width}))(document.querySelector("
                        "'[data-axis=seconds] polyline').getBoundingClientRect())")  # fmt: skip
    browser.move(box["x"] + box["width"], box["y"] + 20)
    assert "validation 93.75% (6.25 s), test 92.19% (6.25 s)" in browser.value(
        "document.querySelector('[data-axis=seconds] .said').textContent"
    )
    assert browser.console == []


def test_pages_fit_a_phone_and_need_no_script(browser: Browser, tmp_path: Path, monkeypatch, capfd) -> None:
    folders = leave(tmp_path / "run"), leave(tmp_path / f"a run with {'a very ' * 9}long name")
    page(monkeypatch, capfd, folders[0])
    page(monkeypatch, capfd, *folders)
    for name in ("report.html", "comparison.html"):
        browser.open(folders[0] / name, 375, script=False, dark=True)
        assert browser.value("document.documentElement.scrollWidth") <= 375
        assert browser.value("[...document.querySelectorAll('fieldset')].every((one) => !one.offsetHeight)")
        assert browser.value("document.querySelector('svg.curves').getBoundingClientRect().width") > 250
        assert browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(21, 24, 28)"
    assert browser.console == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_text_contrasts_with_its_background(
    browser: Browser, tmp_path: Path, monkeypatch, capfd, dark: bool
) -> None:
    folder = leave(tmp_path / "run", summary(metrics={"test_auc": 0.5}, details=CONFUSION, status="failed"))
    add_parties(folder)
    page(monkeypatch, capfd, folder)
    browser.open(folder / "report.html", dark=dark)
    browser.value("document.querySelectorAll('details').forEach((e) => { e.open = true })")
    ratio, words = browser.value(CONTRAST)
    assert 4.5 <= ratio < 21, words
    browser.value("document.querySelector('.headline').style.color = 'rgb(122, 122, 122)'")
    assert browser.value(CONTRAST)[0] < 4.5 and browser.value(CONTRAST)[1].startswith("The run failed")


def test_tab_goes_through_everything_and_enter_opens(browser: Browser, tmp_path: Path, monkeypatch, capfd) -> None:
    """The focus follows the order of the page and is visible; nothing moves by itself."""
    folder = leave(tmp_path / "run", summary(metrics={"test_auc": 0.5}, details=CONFUSION))
    add_parties(folder)
    page(monkeypatch, capfd, folder)
    browser.open(folder / "report.html")
    wanted = browser.value("""[...document.querySelectorAll("a, input:checked, summary, [tabindex]")]
        .filter((e) => e.getClientRects().length && (!e.closest("details:not([open])") || e.matches("summary")))
        .map((e) => [e.localName, e.textContent.slice(0, 30)])""")
    seen = []
    for _ in wanted:
        browser.press("Tab", 9)
        seen.append(browser.value("(({localName, textContent}) => [localName, textContent.slice(0, 30)])"
                                  "(document.activeElement)"))  # fmt: skip
        ring = browser.value("(({outlineStyle, outlineWidth}) => outlineStyle + outlineWidth)"
                             "(getComputedStyle(document.activeElement))")  # fmt: skip
        assert ring == "solid2px", seen[-1]
    assert seen == wanted and {name for name, _ in wanted} == {"a", "input", "summary"}
    browser.value("document.querySelector('#configuration summary').focus()")
    browser.press("Enter", 13)
    assert browser.value("document.querySelector('#configuration details').open")
    browser.value("document.querySelector('nav a[href=\"#traffic\"]').focus()")
    browser.press("Enter", 13)
    assert browser.value("location.hash") == "#traffic" and browser.value("document.getAnimations().length") == 0
    assert browser.console == []
