"""`colonnade protocols`, `colonnade show NAME` and `colonnade plug-ins`."""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import Annotated

import typer
from rich.syntax import Syntax
from rich.table import Column, Table
from rich.text import Text

from colonnade.common.config.data.sources import SOURCES
from colonnade.common.config.models import MODELS
from colonnade.common.config.outside import OUTSIDE_LOSSES, OUTSIDE_METRICS
from colonnade.common.contracts.registry import CONTRACTS, OUTSIDE, ByName
from colonnade.common.errors import ConfigError, InputError, nearest
from colonnade.common.escaped import escaped_lines
from colonnade.common.parsing.reference import protocol_section
from colonnade.common.run.plug_ins import owner
from colonnade.common.tracking.sections import OUTSIDE as TRACKERS
from colonnade.reports.console.screen import out

GROUPS = (OUTSIDE, SOURCES, MODELS, OUTSIDE_LOSSES, OUTSIDE_METRICS, TRACKERS)
"""Every group of plug-ins."""


def list_all() -> None:
    table = Table("name", "what", "source", show_lines=True)
    for name in CONTRACTS:
        where = f"\n{OUTSIDE.version(name)}" if name in OUTSIDE.entries else ""
        try:
            contract = CONTRACTS[name]
        except ConfigError as broken:  # others are unaffected
            table.add_row(name + where, str(broken), "")
            continue
        sees = "".join(f"\n{role} sees {what}" for role, what in contract.sees.items())
        said = Text.assemble(escaped_lines(contract.title), (escaped_lines(sees), "dim"))
        table.add_row(name + where, said, contract.source)
    out.print(table)


def list_plug_ins() -> None:
    """Prints the plug-ins of all groups, with their packages, without importing them."""
    table = Table(*(Column(head, overflow="fold") for head in ("group", "name", "package", "object", "")))
    for plug_ins in GROUPS:
        for entry in plug_ins.registered:
            try:
                plug_ins.refuse_clash(entry.name)
                note = ""
            except ConfigError:
                note = "not usable: the name is taken"
            table.add_row(plug_ins.group, entry.name, owner(entry), entry.value, note)
    if not table.row_count:
        out.print("no plug-in is installed (docs/plug_ins.md)", markup=False)
        return
    out.print(table)


def show(name: Annotated[str, typer.Argument(help="a protocol")]) -> None:
    """Prints a protocol's keys and its files one after the other: three, or one for a package."""
    OUTSIDE.refuse_clash(name)
    if name not in CONTRACTS:
        raise InputError(f"there is no protocol {name!r}{nearest(name, CONTRACTS)}", hint="see `colonnade protocols`")
    _show_keys(name)
    modules = (sys.modules[CONTRACTS[name].config.__module__], *(_home(side[name]) for side in _SIDES))
    for module in dict.fromkeys(modules):  # a plug-in's protocol may be one module
        out.rule(module.__name__.replace(".", "/") + ".py", style="dim")
        try:
            source = inspect.getsource(module)
        except OSError:
            source = f"# the source of {module.__name__} is not installed"
        if out.is_terminal:
            out.print(Syntax(source, "python", background_color="default"))
        else:
            out.print(source, markup=False, soft_wrap=True)


_SIDES: tuple[ByName[object], ...] = (
    ByName("colonnade.server.protocols", "serve"),
    ByName("colonnade.client.protocols", "participate"),
)


def _show_keys(name: str) -> None:
    out.rule(f"keys of federation.protocol: {name}", style="dim")
    table = Table("key", "type", "default", "meaning", box=None)
    for key in protocol_section(name).keys:
        table.add_row(key.name, *(text.replace("`", "") for text in (key.type, key.default, key.meaning)))
    out.print(table)


def _home(side: object) -> ModuleType:
    return sys.modules[side.__module__]
