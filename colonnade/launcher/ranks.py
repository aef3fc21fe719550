"""A party of several processes: torchrun's launcher starts them on this machine, and this process represents them.

torchrun's usual rendezvous listens on all addresses of the machine, and unpickles what it receives
(docs/remaining_threats.md). Ranks of one machine therefore meet through files, in a folder that only this user can
enter.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

import torch

from colonnade.client.ranks.backprop import dismiss, meet, work
from colonnade.client.ranks.group import FILE, Group, World, joined
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.members import PartyConfig
from colonnade.common.errors import ColonnadeError
from colonnade.common.run.python_child import end_with_parent, python_module, safe_children
from colonnade.launcher.scratch import scratch
from colonnade.reports.console.screen import INTERRUPTED, err, fail

_CODE = "code"  # file of a rank's exit code
_LEAST_PATIENCE = 60.0  # seconds for a share of a batch, if the federation's parties answer sooner


def start_ranks(workers: int, threads: int) -> NoReturn:
    """Runs this command as `workers` ranks to their end, and exits as the party does.

    If a rank was killed, the party ends by the same signal, so that its supervisor restarts it.

    Args:
        threads: total of all ranks; 0 divides torch's default.
    """
    from torch.distributed.elastic import multiprocessing  # noqa: PLC0415  # slow
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch  # noqa: PLC0415

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # every rank says itself what is wrong
    code = 0
    with scratch() as folder, safe_children():
        os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # which would listen on all addresses
        os.environ[FILE] = str(folder / "group")
        os.environ["OMP_NUM_THREADS"] = str(max(1, (threads or torch.get_num_threads()) // workers))
        launched = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=workers,
            run_id="party",
            rdzv_backend="c10d",
            rdzv_endpoint=str(folder / "rendezvous"),
            rdzv_configs={"store_type": "file"},
            local_addr="127.0.0.1",
            logs_specs=multiprocessing.DefaultLogsSpecs(log_dir=str(folder / "logs")),
            max_restarts=0,
            monitor_interval=0.1,
        )
        try:
            python, *words = python_module("colonnade", *sys.argv[1:])
            elastic_launch(launched, python)(*words)
        except multiprocessing.api.SignalException:  # `up` ends us soon after others failed, perhaps through us
            code = _kept(folder)
        except multiprocessing.errors.ChildFailedError as failed:
            code = party_code({rank: failure.exitcode for rank, failure in failed.failures.items()})
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    raise SystemExit(code)


def party_code(codes: Mapping[int, int]) -> int:
    """Exit code of a party from those of its ranks: a rank's own error first, then the signal that killed one.

    The others end as a consequence: by SIGTERM, as interrupted, or, rank 0, by SIGKILL.
    """
    own = [code for _, code in sorted(codes.items()) if code > 0 and code != INTERRUPTED]
    killed = [code for code in codes.values() if code < 0 and code != -signal.SIGTERM]
    return next(iter(own), next(iter(killed), INTERRUPTED))


@contextmanager
def party_ranks(
    world: World, federation: FederationConfig, name: str, config: PartyConfig, base: Path
) -> Iterator[Group]:
    """The group of a party that torchrun has started. Any rank but 0 computes here until rank 0 ends, and exits.

    Raises ConfigError or EnvironmentFault as `joined`, and if the ranks have different configurations or code.
    """
    owner, first = f"parties.{name}", world.rank == 0
    end_with_parent(signal.SIGTERM, os.getppid())
    if not first:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # no Python code runs while it waits for rank 0
    patience = max(federation.timeouts.answer, _LEAST_PATIENCE)
    with joined(world, owner, config.interface, patience, _follow if first else _end_quietly) as group:
        with _at_once():
            meet(group, config, base)
            if not first:
                work(owner, group, config, base)
                raise SystemExit
            yield group
        dismiss(group)


@contextmanager
def _at_once() -> Iterator[None]:
    """Exits this rank at its own error without Python's cleanup, which takes longer than `up` waits for the culprit."""
    try:
        yield
    except ColonnadeError as error:
        if place := os.environ.get(FILE):
            Path(place).with_name(_CODE).write_text(str(error.exit_code), encoding="utf-8")
        with suppress(SystemExit):
            fail(error)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(error.exit_code)


def _kept(folder: Path) -> int:
    file = folder / _CODE
    return int(file.read_text(encoding="utf-8") or INTERRUPTED) if file.exists() else INTERRUPTED


def _follow(reason: str) -> NoReturn:
    """Ends like a killed rank: the server waits for a party that left without a message."""
    err.print(f"{reason}: the party ends with it", style="yellow")
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("killed")


def _end_quietly(_reason: str) -> NoReturn:
    """Exits silently: rank 0 is gone, and has given the reason."""
    os._exit(INTERRUPTED)
