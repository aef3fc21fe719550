"""`colonnade protocols`, `colonnade show NAME` and `colonnade plug-ins`."""

from __future__ import annotations

import inspect
import sys
from typing import Annotated

import typer
from rich.syntax import Syntax
from rich.text import Text

from colonnade.common.config.data.sources import SOURCES
from colonnade.common.config.models import MODELS
from colonnade.common.config.outside import OUTSIDE_LOSSES, OUTSIDE_METRICS
from colonnade.common.contracts.registry import CONTRACTS, OUTSIDE, ByName
from colonnade.common.errors import ConfigError, InputError, nearest
from colonnade.common.parsing.reference import protocol_section
from colonnade.common.run.plug_ins import owner
from colonnade.common.text import escaped_lines
from colonnade.common.tracking.sections import OUTSIDE as TRACKERS
from colonnade.reports.console.grid import Grid
from colonnade.reports.console.screen import out

GROUPS = (OUTSIDE, SOURCES, MODELS, OUTSIDE_LOSSES, OUTSIDE_METRICS, TRACKERS)
"""Every group of plug-ins."""


def list_all() -> None:
    table = Grid("name", "what", "source", prose=True)
    for name in CONTRACTS:
        where = f"\n{OUTSIDE.version(name)}" if name in OUTSIDE.entries else ""
        try:
            contract = CONTRACTS[name]
        except ConfigError as broken:  # others are unaffected
            table.add_row(name + where, str(broken), "")
            continue
        sees = "".join(f"\n{role} sees {what}" for role, what in contract.sees.items())
        said = Text.assemble(escaped_lines(contract.title), (escaped_lines(f"{sees}\n"), "dim"))
        table.add_row(name + where, said, contract.source)
    out.show(table)


def list_plug_ins() -> None:
    """Prints the plug-ins of all groups, with their packages, without importing them."""
    table = Grid("group", "name", "package", "object", "")
    for plug_ins in GROUPS:
        for entry in plug_ins.registered:
            try:
                plug_ins.refuse_clash(entry.name)
                note = ""
            except ConfigError:
                note = "not usable: the name is taken"
            table.add_row(plug_ins.group, entry.name, owner(entry), entry.value, note)
    if not table.rows:
        out.say("no plug-in is installed (docs/plug_ins.md)")
        return
    out.show(table)


def show(name: Annotated[str, typer.Argument(help="a protocol")]) -> None:
    """Prints a protocol's keys and its files one after the other: three, or one for a package."""
    OUTSIDE.refuse_clash(name)
    if name not in CONTRACTS:
        raise InputError(f"there is no protocol {name!r}{nearest(name, CONTRACTS)}", hint="see `colonnade protocols`")
    _show_keys(name)
    modules = (sys.modules[CONTRACTS[name].config.__module__], *(sys.modules[side[name].__module__] for side in _SIDES))
    for module in dict.fromkeys(modules):  # a plug-in's protocol may be one module
        out.rule(module.__name__.replace(".", "/") + ".py", style="dim")
        try:
            source = inspect.getsource(module)
        except OSError:
            source = f"# the source of {module.__name__} is not installed"
        if out.is_terminal:
            out.print(Syntax("", "python").highlight(source), soft_wrap=True)
        else:
            out.print(source, soft_wrap=True)


_SIDES: tuple[ByName[object], ...] = (
    ByName("colonnade.server.protocols", "serve"),
    ByName("colonnade.client.protocols", "participate"),
)


def _show_keys(name: str) -> None:
    out.rule(f"keys of federation.protocol: {name}", style="dim")
    table = Grid("key", "type", "default", "meaning", prose=True)
    for key in protocol_section(name).keys:
        table.add_row(key.name, *(text.replace("`", "") for text in (key.type, key.default, key.meaning)))
    out.show(table)
