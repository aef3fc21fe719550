"""Pages in a real browser, where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.browser import CHROMIUM, Browser
from tests.cli.reports import add_parties, leave, page

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("there is no chromium on this machine")
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
                        "'[data-axis=seconds] svg').getBoundingClientRect())")  # fmt: skip
    browser.move(box["x"] + box["width"] - 12, box["y"] + 40)
    assert "validation 93.75% (6.25 s), test 92.19% (6.25 s)" in browser.value(
        "document.querySelector('.said').textContent"
    )
    assert browser.console == []


def test_pages_fit_a_phone_and_need_no_script(browser: Browser, tmp_path: Path, monkeypatch, capfd) -> None:
    folders = leave(tmp_path / "run"), leave(tmp_path / f"a run with {'a very ' * 9}long name")
    page(monkeypatch, capfd, folders[0])
    page(monkeypatch, capfd, *folders)
    for name in ("report.html", "comparison.html"):
        browser.open(folders[0] / name, 375, script=False, dark=True)
        assert browser.value("document.documentElement.scrollWidth") <= 375
        assert browser.value("document.querySelector('fieldset').offsetHeight") == 0
        assert browser.value("document.querySelector('[data-axis=round] svg').getBoundingClientRect().width") > 250
        assert browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(21, 24, 28)"
    assert browser.console == []
