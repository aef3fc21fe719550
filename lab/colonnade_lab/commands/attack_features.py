"""Tables of the attacks on features by members that know the party's model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table

from colonnade_lab.attacks import inversion, pictures
from colonnade_lab.attacks.features import predictions, white_box
from colonnade_lab.attacks.inversion import Inversion
from colonnade_lab.attacks.run import AttackedRun
from colonnade_lab.commands.attack_options import Found, Options, interval, share

WHITE_BOX, FEATURES = "whitebox", "features"
HEADS = ("party", "MSE", "mean row's", "SSIM", "mean image's", "readable", "true features", "chance")


def white(run: AttackedRun, names: tuple[str, ...], options: Options, place: Path) -> Found:
    table = Table(*HEADS, title="inversion by the party's own model, from responses after training")
    parties = {}
    for name in names:
        found = white_box.invert_knowing(run, name, options.known, options.seed)
        parties[name] = numbers(found)
        table.add_row(name, *cells(found))
        draw(place / f"{WHITE_BOX}-{name}.png", found)
    return {"known": options.known, "seed": options.seed, "parties": parties}, table


def features(run: AttackedRun, names: tuple[str, ...], options: Options, place: Path) -> Found:
    """A party's columns from predictions, by all other members together."""
    table = Table(HEADS[0], "attack", *HEADS[1:], title="a party's columns, from what the model predicts")
    parties = {}
    for name in names:
        found = predictions.infer_features(run, name, options.known, options.seed)
        parties[name] = {how: numbers(one) for how, one in found.items()}
        for how, one in found.items():
            table.add_row(name, how, *cells(one))
            draw(place / f"{FEATURES}-{how}-{name}.png", one)
    return {"known": options.known, "seed": options.seed, "parties": parties}, table


def numbers(found: Inversion) -> dict[str, Any]:
    kept = {key: value for key, value in vars(found).items() if key not in {"originals", "made", "readable"}}
    read = found.readable
    return {**kept, "readable": {**vars(read), "interval": interval(read.made, found.rows)}}


def cells(found: Inversion) -> tuple[str, ...]:
    """The columns of `HEADS` after the party."""
    read = found.readable
    errors = ("-" if one is None else f"{one:.4f}" for one in (found.mse, found.floor, found.ssim, found.floor_ssim))
    return (*errors, share(read.made, found.rows), f"{read.true:.2%}", f"{read.chance:.2%}")


def draw(path: Path, found: Inversion) -> None:
    originals, made = inversion.as_images(found.originals), inversion.as_images(found.made)
    if originals is not None and made is not None:
        pictures.draw(path, originals, made)
