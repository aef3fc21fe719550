"""`colonnade protocols` and `colonnade show NAME`."""

from __future__ import annotations

import inspect
import sys
from types import ModuleType

from rich.markup import escape
from rich.syntax import Syntax
from rich.table import Table

from colonnade.client.protocols import PARTICIPATE
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.errors import InputError, nearest
from colonnade.common.parsing.reference import protocol_section
from colonnade.reports.console.screen import out
from colonnade.server.protocols import SERVE


def list_all() -> None:
    """Prints every protocol with its source and what each role sees."""
    table = Table("name", "what", "source", show_lines=True)
    for contract in CONTRACTS.values():
        sees = "\n".join(f"[dim]{role} sees {what}[/]" for role, what in contract.sees.items())
        table.add_row(contract.name, f"{contract.title}\n{sees}", contract.source)
    out.print(table)


def show(name: str) -> None:
    """Prints the keys of a protocol, and its three files, one below the other."""
    if name not in CONTRACTS:
        raise InputError(f"there is no protocol {name!r}{nearest(name, CONTRACTS)}", hint="see `colonnade protocols`")
    _show_keys(name)
    modules = (sys.modules[CONTRACTS[name].config.__module__], _home(SERVE[name]), _home(PARTICIPATE[name]))
    for module in modules:
        out.rule(module.__name__.replace(".", "/") + ".py", style="dim")
        source = inspect.getsource(module)
        if out.is_terminal:
            out.print(Syntax(source, "python", background_color="default"))
        else:
            out.print(source, markup=False, soft_wrap=True)


def _show_keys(name: str) -> None:
    out.rule(f"keys of federation.protocol: {name}", style="dim")
    table = Table("key", "type", "default", "meaning", box=None)
    for key in protocol_section(name).keys:
        table.add_row(key.name, *(escape(text.replace("`", "")) for text in (key.type, key.default, key.meaning)))
    out.print(table)


def _home(side: object) -> ModuleType:
    return sys.modules[side.__module__]
