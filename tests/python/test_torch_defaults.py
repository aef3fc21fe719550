"""A run does not depend on what the program that starts it has set in PyTorch, and leaves it as it was."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import colonnade
from colonnade.common.run.own_settings import own_settings
from tests.python.tables import make_config, make_tables


@contextmanager
def changed(change: Callable[[Any], Any], value: Any, before: Any) -> Any:
    change(value)
    try:
        yield
    finally:
        change(before)


STATES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "float64": lambda: changed(torch.set_default_dtype, torch.float64, torch.float32),
    "bfloat16": lambda: changed(torch.set_default_dtype, torch.bfloat16, torch.float32),
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "meta": lambda: torch.device("meta"),
    "deterministic": lambda: changed(torch.use_deterministic_algorithms, True, False),
    "precision": lambda: changed(torch.set_float32_matmul_precision, "medium", "highest"),
}


def settings() -> tuple[Any, ...]:
    return (
        torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled(), torch.get_num_threads(),
        torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu"), torch.get_float32_matmul_precision(),
        torch.are_deterministic_algorithms_enabled(),
    )  # fmt: skip


@pytest.mark.parametrize("state", STATES)
def test_the_block_has_pytorchs_own_settings_and_restores_the_callers(state: str) -> None:
    fresh = settings()
    with STATES[state]():
        theirs = settings()
        assert theirs != fresh
        with own_settings():
            assert settings() == fresh
            weight = torch.nn.Linear(2, 2).weight
            assert (weight.dtype, weight.device.type, weight.requires_grad) == (torch.float32, "cpu", True)
        assert settings() == theirs
        with pytest.raises(ValueError, match="theirs"), own_settings():
            raise ValueError("theirs")
        assert settings() == theirs
    assert settings() == fresh


def test_a_run_under_all_of_them_is_the_same_to_the_last_bit(tmp_path: Path) -> None:
    config, tables = make_config(), make_tables()
    fresh = colonnade.simulate(config, tables, tmp_path / "fresh", sets=("federation.epochs=1",))
    with STATES["float64"](), torch.inference_mode(), STATES["autocast"](), STATES["meta"]():
        found = colonnade.simulate(config, tables, tmp_path / "found", sets=("federation.epochs=1",))
    assert found.metrics == fresh.metrics


class Seen:
    """A table that notes PyTorch's settings when it is read, and ends the call."""

    def __arrow_c_stream__(self, _schema: object = None) -> Any:
        self.found = settings()
        raise OSError("read")


@pytest.mark.parametrize("call", [colonnade.simulate, colonnade.cv, colonnade.tune, colonnade.compare])
def test_every_call_that_trains_in_this_process_has_them(
    call: Callable[..., object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fresh, seen = settings(), Seen()
    with (
        STATES["float64"](),
        torch.inference_mode(),
        STATES["meta"](),
        pytest.raises(colonnade.DataError, match="read"),
    ):
        call(make_config(), {"server": seen, "bank": seen, "clinic": seen})
    assert seen.found == fresh
