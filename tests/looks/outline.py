"""How a page is built: headings, titles of cards, pictures and tables, without the numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.browser import Browser

OUTLINE = Path(__file__).parents[2] / "docs" / "figures" / "pages" / "pages.json"
SHOWN = {"report", "comparison", "explanation", "card"}
"""Pages of which docs/figures/pages has pictures."""
SCREENS = {"phone": (390, 844), "tablet": (768, 1024), "screen": (1280, 800)}
"""Width and height of what is seen first."""

_READ = """(() => {
  const text = (e) => e.textContent.trim().replace(/\\s+/g, " ");
  const all = (what) => [...document.querySelectorAll(what)].map(text);
  return {
    headings: [...document.querySelectorAll("h2, h3")].filter((e) => !e.closest(".card")).map(text),
    cards: all(".card h2"),
    pictures: all("svg[role=img] > title"),
    tables: all("caption"),
  };
})()"""


def outline(browser: Browser) -> dict[str, Any]:
    found: dict[str, Any] = browser.value(_READ)
    return found
