"""The table at the end of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from cli.progress import megabytes
from common.protocols import CONTRACTS

METRICS = {
    "test_accuracy": "test accuracy",
    "val_accuracy": "validation accuracy",
    "train_loss": "training loss",
    "test_loss": "test loss",
    "val_loss": "validation loss",
}


def show_summary(console: Console, folder: Path) -> None:
    """Prints what summary.json says, and where the run lies."""
    path = folder / "summary.json"
    if not path.exists():
        return
    summary = json.loads(path.read_text())
    table = Table(show_header=False, title=f"{summary['protocol']} on {summary['dataset']}: {summary['status']}")
    table.add_row("parties", str(len(summary["parties"])))
    table.add_row("rounds", str(summary["rounds"]))
    for key, name in METRICS.items():
        if (value := summary["metrics"].get(key)) is not None:
            table.add_row(name, f"{value:.2%}" if key.endswith("accuracy") else f"{value:.4f}")
    for way, name in (("up", "parties to server"), ("down", "server to parties")):
        payload, wire = (megabytes(summary["bytes"][way][unit]) for unit in ("payload", "wire"))
        table.add_row(name, f"{payload} of tensors, {wire} on the wire")
    table.add_row("privacy", _privacy(summary))
    first = summary["seconds_to_first_round"]
    table.add_row(
        "time", f"{summary['seconds']:.1f} s" + ("" if first is None else f", first round after {first:.1f} s")
    )
    console.print(table)
    console.print(f"run folder: {folder}", markup=False)


def _privacy(summary: dict[str, Any]) -> str:
    spent = [epsilon for epsilon in summary["epsilon"].values() if epsilon is not None]
    sees = CONTRACTS[summary["protocol"]].sees["server"]
    return f"epsilon {max(spent):.2f}" if spent else f"no guarantee; the server sees {sees}"
