"""`colonnade protocols` and `colonnade show NAME`."""

from __future__ import annotations

import inspect
import sys
from types import ModuleType

from rich.syntax import Syntax
from rich.table import Table

from colonnade.client.protocols import PARTICIPATE
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.errors import InputError, nearest
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
    """Prints the files of a protocol, one below the other: three, or the one of a package."""
    if name not in CONTRACTS:
        raise InputError(f"there is no protocol {name!r}{nearest(name, CONTRACTS)}", hint="see `colonnade protocols`")
    modules = (sys.modules[CONTRACTS[name].config.__module__], _home(SERVE[name]), _home(PARTICIPATE[name]))
    for module in dict.fromkeys(modules):
        out.rule(module.__name__.replace(".", "/") + ".py", style="dim")
        source = inspect.getsource(module)
        if out.is_terminal:
            out.print(Syntax(source, "python", background_color="default"))
        else:
            out.print(source, markup=False, soft_wrap=True)


def _home(side: object) -> ModuleType:
    return sys.modules[side.__module__]
