"""The commands of `colonnade`: their names, lines of help and places. Only the command that runs is imported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from colonnade import laboratory


@dataclass(frozen=True)
class Command:
    """A command, or a group of commands.

    Args:
        place: MODULE:NAME below `colonnade.cli`, of a function or of a Typer app.
        help: its line in the help of `colonnade`, and the heading of its own.
        settings: Typer's, for an unusual command.
    """

    place: str
    help: str
    settings: Mapping[str, Any] = field(default_factory=dict)


_AS_GIVEN = {
    "add_help_option": False,
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True},
}
"""For a command that parses its words itself."""

PANELS: Mapping[str, Mapping[str, Command]] = {
    "Run a federation, or predict with a trained one": {
        "up": Command(
            "run.commands:up", "Run a whole federation on this machine: a server and every party, each a process."
        ),
        "server": Command("run.commands:server", "Run the server of a federation on this machine."),
        "client": Command("run.commands:client", "Run one party of a federation on this machine."),
        "simulate": Command(
            "run.commands:simulate",
            "Run a federation in this process on a virtual clock: an hour of stragglers in seconds.",
        ),
        "predict": Command(
            "run.commands:predict",
            "Predict with the model of a finished run: ids in as CSV, classes and probabilities out.",
        ),
        "serve": Command("run.commands:serve", "Serve the model of a finished run to callers, until stopped."),
        "answer": Command(
            "run.commands:answer", "Run one party with its trained model for predictions, until the server ends."
        ),
        "health": Command(
            "run.commands:health",
            "Query a member's health service: exit code 0 if it is up, or ready with `--service colonnade`.",
            _AS_GIVEN,
        ),
    },
    "Data and configurations": {
        "check": Command(
            "data.commands:check", "Check a configuration, and the data and keys that it names; start nothing."
        ),
        "schema": Command("data.commands:schema", "Print the JSON Schema of a configuration, for editors."),
        "deal": Command(
            "data.commands:deal",
            "Write a folder for every member: its configuration, its keys, and its columns or labels alone.",
        ),
        "forget": Command(
            "data.commands:forget",
            "Remove the alignments that members keep for their next runs, and their secret exponents.",
        ),
        "datasets": Command("data.datasets:app", "List the data sets that Colonnade knows, or fetch one."),
        "tables": Command("data.datasets:tables_app", "Cut a known set into csv tables with keys, one a member."),
        "new": Command("new.commands:app", "Write a working start: a federation with example tables, or a protocol."),
    },
    "Keys": {
        "token": Command(
            "keys.commands:token", "Make a token for a caller of `serve`, add it to the file of tokens, and print it."
        ),
        "certs": Command("keys.commands:app", "Make, sign, show and revoke certificates."),
    },
    "Read the results of a run": {
        "report": Command(
            "read.report:report",
            "Write a page about a run: curves, timelines, traffic, privacy; about several, a comparison.",
        ),
        "explain": Command(
            "read.commands:explain", "Measure how much each party of a finished run matters: a page with pictures."
        ),
        "card": Command("read.commands:card", "Write a model card: data, members, quality, protection, and limits."),
        "scorecard": Command(
            "read.commands:scorecard",
            "Write a page about the scores of a two-class run: KS, gain, lift, cut-offs, stability, groups.",
        ),
        "bins": Command(
            "read.commands:bins", "Write a page about a party's bins of a scorecard: WOE, IV, points, stability."
        ),
        "ledger": Command(
            "read.ledger:ledger", "Show what left a party, by its own record: kinds, bytes, rows, protection, epsilon."
        ),
        "export": Command(
            "read.commands:export", "Write a member's part of a model as safetensors and as a torch.export program."
        ),
        "protocols": Command("read.protocols:list_all", "List the protocols."),
        "show": Command(
            "read.protocols:show", "Print a protocol: its keys, its contract, the server's side and the party's side."
        ),
        "plug-ins": Command(
            "read.protocols:list_plug_ins",
            "List the installed plug-ins: protocols, sources, models, losses, metrics and trackers of other packages.",
        ),
    },
    "Search": {
        "tune": Command(
            "search:tune",
            "Search for the best values of a configuration by simulated runs; the same command again goes on.",
        ),
        "cv": Command(
            "search:cv",
            "Cross-validate a configuration by simulated runs; the same command again goes on.",
        ),
        "compare": Command(
            "search:compare",
            "Run all protocols on one task and write a page: with --on on your own data, else on digits "
            "(colonnade-lab).",
        ),
    },
}
"""All commands but the laboratory's, by their panel of the help."""

COMMANDS: Mapping[str, Command] = {name: command for panel in PANELS.values() for name, command in panel.items()}


class LazyCommands(TyperGroup):
    """Lists commands by their lines of help, and imports the one that is called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {
            name: TyperCommand(name, help=command.help, rich_help_panel=panel)
            for panel, commands in PANELS.items()
            for name, command in commands.items()
        }

    def list_commands(self, ctx: Any) -> list[str]:
        self._add_laboratory()
        names = super().list_commands(ctx)
        return sorted(names, key=lambda name: name in COMMANDS and COMMANDS[name].place.endswith("app"))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {panel: [] for panel in PANELS}
        for name in self.list_commands(ctx):
            command = self.commands[name]
            panels.setdefault(getattr(command, "rich_help_panel", None) or "Commands", []).append(
                (name, command.help or "")
            )
        for panel, lines in panels.items():
            with formatter.section(panel):
                formatter.write_dl(lines)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        if args[0] not in self.commands:
            self._add_laboratory(args[0])
        name, command, rest = super().resolve_command(ctx, args)
        return name, loaded(name) if name in COMMANDS else command, rest

    def _add_laboratory(self, word: str = "") -> None:
        """Adds the laboratory's commands. Raises InputError if `word` is one of them and it is not installed."""
        if word in laboratory.COMMANDS or laboratory.installed():
            added = typer.Typer(rich_markup_mode=None)
            laboratory.load("commands", f"`{word}`")(added)
            group = typer.main.get_command(added)
            assert isinstance(group, TyperGroup)  # of several commands
            self.commands.update(group.commands)


@cache
def loaded(name: str) -> Any:
    """Imports a command, and builds it from its function's parameters."""
    command = COMMANDS[name]
    module, _, attribute = command.place.partition(":")
    found = getattr(import_module(f"colonnade.cli.{module}"), attribute)
    app = found
    if not isinstance(found, typer.Typer):
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(name, help=command.help, **command.settings)(found)
    made = typer.main.get_command(app)
    made.name, made.help = name, command.help
    return made
