"""Runs whose pages are looked at: of two classes, simulated and as processes with a straggler and a restart, of ten,
of a number, a failed one, and comparisons."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits

import colonnade
from colonnade.cli.read.report import report
from colonnade.cli.read.scorecard import scorecard

_AGREED = {"align": "psi", "batch": 32, "rows": {"test": 0.3, "validation": 0.2}, "evaluate": {"every": 5}}


@dataclass(frozen=True)
class Example:
    """A page with what it is about."""

    name: str
    page: Path


def make_pages(folder: Path) -> list[Example]:
    """Trains small models on the virtual clock, and makes every kind of page about them."""
    biopsies = colonnade.simulate(*_biopsies("split"), folder / "biopsies")
    colonnade.simulate(*_biopsies("centralized"), folder / "pooled")
    coded = colonnade.simulate(*_biopsies("vimadmm"), folder / "admm")
    digits = colonnade.simulate(*_digits(), folder / "digits")
    progress = colonnade.simulate(*_progression(), folder / "progression")
    biopsies.explain()
    report([coded.folder / "parties" / "clinic"], None, again=False)
    scorecard(biopsies.folder, None, "", None, "", folder / "scores.html")
    short: dict[str, Any] = {"sets": ("federation.epochs=5",), "progress": False}
    shorter = {**short, "sets": ("federation.epochs=2",)}
    protocols = ["split", "fdml", "hetero_lr", "vfl_afe"]
    compared = colonnade.compare(*_biopsies("split"), protocols=protocols, trials=0, out=folder / "compare", **short)
    rates = ("every_party.optimiser.name=sgd", "every_party.optimiser.lr=1e30")
    with suppress(colonnade.ColonnadeError):
        colonnade.simulate(*_biopsies("split"), folder / "failed", sets=rates)
    pages = {
        "report": biopsies.report(),
        "report of a failed run": colonnade.load(folder / "failed").report(),
        "report of processes": _processes(folder / "processes").report(),
        "report of a party": coded.folder / "parties" / "clinic" / "report.html",
        "report of ten classes": digits.report(),
        "report of a number": progress.report(),
        "comparison": biopsies.compare(coded),
        "comparison of protocols": compared.page,
        "search": colonnade.tune(*_biopsies("split"), trials=3, out=folder / "tune", **shorter).page,
        "folds": colonnade.cv(*_biopsies("split"), folds=3, out=folder / "cv", **shorter).page,
        "explanation": biopsies.folder / "explain.html",
        "card": biopsies.card().with_suffix(".html"),
        "scores": folder / "scores.html",
    }
    return [Example(name, page) for name, page in pages.items()]


def _processes(out: Path) -> colonnade.Run:
    """Over gRPC, with a straggler and a party that is killed and comes back."""
    chaos = {"laboratory": {"delay": "uniform(10ms, 60ms)"}, "registry": {"delay": "10ms", "crash": 20}}
    config, tables = _biopsies("split")
    config["federation"] |= {"epochs": 6, "stop": "none", "absence": "continue", "quorum": {"need": 2, "grace": 0.02}}
    return colonnade.up(config | {"parties": {name: {"chaos": faults} for name, faults in chaos.items()}}, tables, out)


def _biopsies(protocol: str) -> tuple[dict[str, Any], Mapping[str, pd.DataFrame]]:
    cases = load_breast_cancer(as_frame=True).frame.rename_axis("case").reset_index()
    tables = {
        "server": cases[["case", "target"]].assign(target=cases["target"].map({0: "malignant", 1: "benign"})),
        "clinic": cases.iloc[:500, :16],
        "laboratory": cases.iloc[20:, [0, *range(16, 26)]],
        "registry": cases.iloc[:, [0, *range(26, 31)]],
    }
    return _config("biopsies", "case", "target", protocol=protocol, classes=["benign", "malignant"], epochs=20), tables


def _digits() -> tuple[dict[str, Any], Mapping[str, pd.DataFrame]]:
    pixels = load_digits(as_frame=True).frame.rename_axis("image").reset_index().iloc[:600]
    halves = {"left": pixels.iloc[:, :33], "right": pixels.iloc[:, [0, *range(33, 65)]]}
    return (
        _config("digits", "image", "target", protocol="split", classes=10, epochs=5),
        {"server": pixels[["image", "target"]], **halves},
    )


def _progression() -> tuple[dict[str, Any], Mapping[str, pd.DataFrame]]:
    patients = load_diabetes(as_frame=True).frame.rename_axis("patient").reset_index()
    tables = {
        "server": patients[["patient", "target"]],
        "doctor": patients.iloc[:, :5],
        "laboratory": patients.iloc[:, [0, *range(5, 11)]],
    }
    return _config("progression", "patient", "target", protocol="split", task="regression", epochs=20), tables


def _config(id: str, key: str, label: str, **federation: Any) -> dict[str, Any]:
    return {
        "federation": {"id": id, "keys": {"seeded": True}, **_AGREED, **federation},
        "server": {"labels": {"key": key, "label": label}},
        "every_party": {"data": {"key": key}},
    }
