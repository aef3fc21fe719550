"""Modules by the names that they had in 0.2."""

from __future__ import annotations

import importlib

import pytest

from colonnade.common.moved import MODULES, new_place


@pytest.mark.parametrize("old", MODULES)
def test_an_old_name_is_the_module_that_it_is_now_and_warns(old: str) -> None:
    place = new_place(f"colonnade.{old}")
    assert place == f"colonnade.{MODULES[old]}"
    now = importlib.import_module(place)
    spec = now.__spec__
    with pytest.warns(DeprecationWarning, match=f"colonnade.{old} is now {place}: import it from there"):
        assert importlib.import_module(f"colonnade.{old}") is now
    assert now.__spec__ is spec and now.__name__ == place


def test_a_module_of_a_moved_package_is_loaded_once() -> None:
    from colonnade.common.models import losses

    with pytest.warns(DeprecationWarning, match="is now colonnade.common.models.losses"):
        assert importlib.import_module("colonnade.common.numerics.losses") is losses


def test_a_module_that_never_was_is_refused() -> None:
    with pytest.warns(DeprecationWarning), pytest.raises(ModuleNotFoundError):
        importlib.import_module("colonnade.common.numerics.nothing")
