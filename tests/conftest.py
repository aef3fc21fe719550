"""Settings of all tests: one thread, since several run at once and the tensors are small."""

from __future__ import annotations

import os

# Before NumPy is loaded. Threads of BLAS and OpenMP wait for each other by spinning: on small matrices and a busy
# machine that takes 20 to 50 times the work's own time, in children as well.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import gc
from collections.abc import Iterator
from functools import cache

import pytest
import torch
import typer.main
from hypothesis import settings

from colonnade.launcher import processes
from tests.support import warm
from tests.support.bundled import parse_once
from tests.support.patience import PATIENCE
from tests.support.warm_server import spare_the_disk

torch.set_num_threads(1)
typer.main.get_command = cache(typer.main.get_command)  # as in a process, which makes the commands once
parse_once()
spare_the_disk()

# On a busy machine any example may take long: pytest's own timeout ends hanging tests. More examples have found nothing
# more, and take half of the time of the tests without processes.
settings.register_profile("colonnade", deadline=None, max_examples=25)
settings.load_profile("colonnade")


_LONG = ("processes", "browser", "netns")
_ELSEWHERE = ("papers", "containers")
# Without any of these markers, and not fast: they train at length, wait for timeouts, or start children that load all.
_SLOW = (
    "tests/adversaries/server/test_unread_messages.py",
    "tests/adversaries/strangers/test_flood_of_connections.py",
    "tests/adversaries/strangers/test_neighbours_on_the_machine.py",
    "tests/adversaries/strangers/test_old_tls.py",
    "tests/adversaries/strangers/test_silent_connections.py",
    "tests/adversaries/strangers/test_slow_bodies.py",
    "tests/attacks/",
    "tests/cli/data/test_wrong_input.py::test_a_wrong_path[",
    "tests/cli/data/test_wrong_input.py::test_debug_shows_where",
    "tests/cli/new/test_new_federation.py::test_it_trains_and_predicts_at_once[",
    "tests/cli/read/test_explain.py",
    "tests/cli/read/test_export.py",
    "tests/cli/research/test_attack.py",
    "tests/cli/research/test_compare.py",
    "tests/cli/research/test_reproduction.py",
    "tests/cli/research/test_reproduction_pictures.py",
    "tests/cli/run/test_aligned.py",
    "tests/cli/run/test_kept_response_noise.py",
    "tests/cli/run/test_predict.py",
    "tests/cli/run/test_predict_keys.py",
    "tests/common/alignment/test_memory.py",
    "tests/common/models/test_optimiser.py::test_no_optimiser_imports_the_compiler",
    "tests/common/observability/test_endpoints.py::test_nothing_is_imported_without_endpoints",
    "tests/common/privacy/accounting/test_chain.py",
    "tests/common/runtime/test_run_folder.py::test_a_folder_of_a_newer_format_is_refused",
    "tests/common/wire/test_compressed.py::test_every_form_learns_and_repeats[",
    "tests/common/wire/test_compressed.py::test_few_bits_learn_nearly_as_much_and_repeat",
    "tests/common/wire/test_connection.py",
    "tests/pages/test_readme.py::test_its_python_runs",
    "tests/pages/test_recipes.py::test_python",
    "tests/plug_ins/test_losses.py",
    "tests/outside/test_registration.py",
    "tests/protocols/test_agg_vfl.py",
    "tests/protocols/test_blinded.py",
    "tests/protocols/test_c_vfl.py",
    "tests/protocols/test_class_weights.py",
    "tests/protocols/test_conformance.py",
    "tests/protocols/test_czofo.py",
    "tests/protocols/test_devices.py",
    "tests/protocols/test_fedvs.py",
    "tests/protocols/test_label_privacy.py",
    "tests/protocols/test_linear_admm.py",
    "tests/protocols/test_over_grpc.py",
    "tests/protocols/test_prediction.py",
    "tests/protocols/test_regression.py",
    "tests/protocols/test_response_noise.py",
    "tests/protocols/test_resume.py",
    "tests/protocols/test_split_avg.py",
    "tests/protocols/test_stop.py",
    "tests/protocols/test_syn_zoo_vfl.py",
    "tests/protocols/test_vafl.py",
    "tests/protocols/test_vfedmh.py",
    "tests/protocols/test_vfl_afe.py",
    "tests/protocols/test_vimadmm.py",
    "tests/protocols/test_vimadmm_j.py",
    "tests/search/test_space.py::test_every_key_of_a_usual_space_changes_what_is_learned[",
    "tests/search/test_tuning.py",
    "tests/server/test_metrics.py",
    "tests/test_distribution.py",
    "tests/test_release.py",
    "tests/tracking/test_mlflow.py",
)


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with processes may take ten times as long on a busy machine; those without are `fast`."""
    for item in items:
        long = any(map(item.get_closest_marker, _LONG))
        if long and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(PATIENCE + 100))
        if not (long or any(map(item.get_closest_marker, _ELSEWHERE)) or item.nodeid.startswith(_SLOW)):
            item.add_marker(pytest.mark.fast)


def pytest_collection_finish() -> None:
    """Keeps the garbage collector from searching what all tests share, which takes a second each time."""
    gc.freeze()


def pytest_runtest_setup() -> None:
    """The command line, run in this process, sets the umask for later files."""
    os.umask(0o022)


@pytest.fixture(scope="session", autouse=True)
def _forked_fork_servers() -> Iterator[None]:
    """A command run in this process starts a fork server, even if it then refuses its arguments."""
    with warm.replace(processes):
        yield
