"""The moving picture of README.md: numbers of a run, readable without motion, nothing from elsewhere."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from benchmarks.moving_picture import draw, read

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "docs/figures/run.svg"
SVG = "{http://www.w3.org/2000/svg}"


def shown(picture: str) -> list[str]:
    """Texts of the picture without motion: those of class `f` are hidden, but for the last."""
    parents = list(ElementTree.fromstring(picture).iter(f"{SVG}g"))
    hidden = {text for group in parents if "f" in (names := group.get("class", "").split()) and "last" not in names
              for text in group.iter(f"{SVG}text")}  # fmt: skip
    return ["".join(text.itertext()) for text in ElementTree.fromstring(picture).iter(f"{SVG}text")
            if "".join(text.itertext()) not in {"".join(one.itertext()) for one in hidden}]  # fmt: skip


def test_numbers_are_those_of_the_events(tmp_path: Path) -> None:
    events = [{"kind": "begin", "rounds": 4, "parties": ["bank", "shop<"]}]
    for number in (2, 4):
        events.append({"kind": "round", "round": number, "bytes_up": number * 1_000_000, "bytes_down": 500_000})
        events.append({"kind": "evaluation", "round": number, "part": "validation", "val_accuracy": number / 5})
    (tmp_path / "events.jsonl").write_text("\n".join(map(json.dumps, events)))
    summary = {"protocol": "split", "dataset": "toy", "metrics": {"test_accuracy": 0.8125}}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    picture = draw(read(tmp_path))
    texts = shown(picture)
    assert "round 4 of 4 · validation 80.0% · test 81.25%" in texts and "4.0 MB up, 0.5 MB down" in texts
    assert {"bank", "shop<", "server", "embeddings to the server", "gradients to the parties"} <= set(texts)
    assert not any(text.startswith("round 2") for text in texts)
    points = [float(one.get("cy", "")) for one in ElementTree.fromstring(picture).iter(f"{SVG}circle")
              if "pt" in one.get("class", "").split()]  # fmt: skip
    assert points == [176.0, 96.0]  # 40 and 80 of 200 pixels above 256


def test_the_kept_picture_is_small_still_readable_and_alone() -> None:
    picture = KEPT.read_text()
    assert len(picture.encode()) < 60_000
    assert set(re.findall(r"https?://[^\"' ]+", picture)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<script|<image|@import|url\(|href", picture)
    still, _, moving = picture.partition("@media (prefers-reduced-motion:no-preference)")
    assert "animation" not in still and "animation" in moving and "prefers-color-scheme:dark" in still
    texts = shown(picture)
    assert any(re.fullmatch(r"round 120 of 120 · validation \d\d\.\d% · test 9\d\.\d\d%", text) for text in texts)
    assert sum(text.startswith("round ") for text in texts) == 1
