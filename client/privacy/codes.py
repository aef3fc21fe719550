"""A party's released codes over all sessions: the draws of its rows, the encoder, and the budget that pays for both.

Each row's code is drawn once, and the same draw is sent whenever the row is requested: a second draw would cost its
epsilon again. Draws are therefore durable before they leave, and a row keeps its draw even if its code changes later.
The encoder is trained once in a run, for the same reason.

Rows have places among the draws by their keys, because every alignment numbers rows anew. The rows of the run's own
alignment come first, in its order; rows first seen in a prediction follow.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.privacy import DiscretePrivacyConfig
from colonnade.common.data.draws import Draws
from colonnade.common.data.rows import generator
from colonnade.common.errors import CheckpointError, InputError
from colonnade.common.messaging.outgoing import Released
from colonnade.common.privacy.accounting.budget import Budget
from colonnade.common.privacy.accounting.plan import PrivacyPlan
from colonnade.common.privacy.accounting.sampled import SampledGaussian
from colonnade.common.privacy.codes import CodeRelease, DiscretePlan, SeededSets, as_codes
from colonnade.common.privacy.encoders import LinearEncoder
from colonnade.common.privacy.laplace import Bits
from colonnade.common.privacy.noise import Normals, secure_bytes, secure_normals, seeded_bytes, seeded_normals
from colonnade.common.privacy.release import Release
from colonnade.common.privacy.subsets import SubsetSelection
from colonnade.common.run.run_cache import ANEW, read_tensor, write_tensor
from colonnade.common.run.run_folder import PartyFolder

if TYPE_CHECKING:
    from colonnade.common.protocols.codes import Config


DRAWS = ("training.safetensors", "held-out.safetensors")  # files of the rows' draws

_ENCODER = "encoder.safetensors"


class OwnCodes:
    """What a party releases under `mechanism: discrete`.

    Args:
        budget: pays for one release, which is the whole plan.
        folder: stores codes and encoder; None keeps both in memory.
        later: number of rows, the last ones, that were added after training.

    Raises CheckpointError if draws are missing although the budget was spent, are damaged, or have other settings.
    """

    def __init__(self, plan: DiscretePlan, budget: Budget, rows: int, folder: Path | None, later: int = 0) -> None:
        self._budget, begun, bits = budget, budget.releases > 0, secure_bytes()
        training, held_out, weights = (None if folder is None else folder / name for name in (*DRAWS, _ENCODER))
        first = KeptCodes(training, plan.training, rows, begun=begun, bits=bits, later=later)
        second = KeptCodes(held_out, plan.held_out, rows, begun=begun, bits=bits, later=later)
        self._kept = first, second
        self._counts = KeptCounts(plan, None if folder is None else folder / "counts.safetensors", bits)
        self.encoder = OwnEncoder(
            plan.encoder,
            weights,
            self._pay_first,
            lambda: any(bool(each.drawn.any()) for each in self._kept),
            self._counts.draw,
        )
        self.release = CodeRelease(plan, first, second, rows, self._pay, self._counts.get)

    def _pay_first(self) -> None:
        """Pays for the run, after creating the draws' files, so that their loss is noticed."""
        for each in self._kept:
            each.create()
        self._pay()

    def _pay(self) -> float:
        return self._budget.releases or self._budget.spend()


class SeededCodes:
    """For tests: draws follow from the federation's seed, spending is only counted, and nothing is kept."""

    def __init__(self, plan: DiscretePlan, budget: Budget, rows: int, seed: int, party: str) -> None:
        def bits(part: str, of: Tensor) -> Bits:
            return seeded_bytes(generator(part, seed, party, of.tolist()))

        pay = lambda: budget.releases or budget.spend()  # noqa: E731
        training = SeededSets(plan.training, lambda some: bits("training codes", some))
        held_out = SeededSets(plan.held_out, lambda some: bits("held-out codes", some))
        counts = KeptCounts(plan, None, seeded_bytes(generator("counts", seed, party)))
        self.encoder = OwnEncoder(
            plan.encoder,
            finish=counts.draw,
            normals=seeded_normals(generator("encoder noise", seed, party)),
            bits=seeded_bytes(generator("encoder", seed, party)),
        )
        self.release = CodeRelease(plan, training, held_out, rows, pay, counts.get)


@dataclass(frozen=True)
class OwnEncoder:
    """Trains once: a second training would spend budget again, so only the kept weights are ever used.

    A training that a crash ends leaves nothing: it restarts at no further cost, as long as no code has left.

    Args:
        path: None keeps no weights.
        begin: pays for the training, durably.
        left: True if codes may have left.
        finish: called before the weights are kept, with the rows' classes and the named ones, int64 (rows,) each.
        bits: source of the draws of rows; None for the system's.
    """

    mechanism: SampledGaussian
    path: Path | None = None
    begin: Callable[[], None] = lambda: None
    left: Callable[[], bool] = lambda: False
    finish: Callable[[Tensor, Tensor], None] = lambda _labels, _named: None
    normals: Normals = secure_normals
    bits: Bits | None = None

    def train(self, inputs: Tensor, targets: Tensor, lr: float) -> Tensor:
        """Trains, or reads the kept weights. Returns float64 (inputs, classes).

        `inputs` are the training rows', float32 (rows, inputs), `targets` class probabilities, (rows, classes). Raises
        CheckpointError if the weights are damaged, have other settings, or are missing although codes have left.
        """
        settings = [inputs.shape[1], targets.shape[1], self.mechanism.rate, self.mechanism.noise_multiplier]
        about = {"settings": json.dumps([*settings, self.mechanism.steps, lr])}
        if self.path is not None and self.path.exists():
            return read_tensor(self.path, about)
        if self.left():
            raise CheckpointError(f"{self.path} is missing, and codes that it made have left", hint=ANEW)
        self.begin()
        encoder = LinearEncoder(self.mechanism, DiscretePrivacyConfig.clip, lr)
        weights = encoder.train(inputs, targets, normals=self.normals, bits=self.bits)
        self.finish(targets.argmax(1), (inputs.double() @ weights).argmax(1))
        if self.path is not None:
            write_tensor(self.path, weights, about)
        return weights


def unprotected(train: Tensor, draws: Draws, config: Config) -> OwnEncoder:
    """Trains without noise, where nothing is protected."""
    mechanism = SampledGaussian(min(1.0, config.drawn / len(train)), 1.0, config.steps)
    return OwnEncoder(
        mechanism,
        normals=lambda shape: torch.zeros(shape, dtype=torch.float64),
        bits=seeded_bytes(draws.generator("encoder")),
    )


class KeptCodes:
    """Releases the codes of rows by subset selection; a row costs the mechanism's epsilon once over the whole run.

    Every call writes all draws so far, one bit per row and code: ask for many rows at once.

    Args:
        path: None keeps draws in memory.
        mechanism: number of codes k, and size of their sets.
        begun: True if codes may have left in an earlier start: the file must then exist.
        later: number of rows, the last ones, that were added after training.

    Raises CheckpointError if the file is missing although codes have left, is damaged, or has other settings.
    """

    def __init__(
        self, path: Path | None, mechanism: SubsetSelection, rows: int, *, begun: bool, bits: Bits, later: int = 0
    ) -> None:
        self._path, self._mechanism, self._bits, self._later = path, mechanism, bits, later
        a, b = mechanism.odds
        self._about = {"settings": json.dumps([rows - later, mechanism.classes, mechanism.size, a, b])}
        self._sets = np.zeros((rows, -(-mechanism.classes // 8)), np.uint8)  # no bit is set until a row is drawn
        if path is not None and path.exists():
            self._sets = self._read(path)
        elif path is not None and begun:
            raise CheckpointError(f"{path} is missing, and codes of these rows may have left", hint=ANEW)

    @property
    def drawn(self) -> Tensor:
        """Rows that have a draw, bool (rows,)."""
        return torch.from_numpy(self._sets.any(axis=1))

    def create(self) -> None:
        """Writes the file before anything is drawn, so that a loss is noticed. Raises EnvironmentFault."""
        if self._path is not None and not self._path.exists():
            self._write(self._sets)

    def release(self, rows: Tensor, codes: Tensor) -> Tensor:
        """Sets of the given rows, drawn now for those that have none; all are durable when this returns.

        Args:
            rows: int64 (n,), distinct.
            codes: from 0 to k - 1, int64 (n,).

        Returns membership as 1 and 0, float64 (n, k). Raises InputError if a row or a code is outside its range, or a
        row is repeated; EnvironmentFault if the draws cannot be written: none is used then.
        """
        at, of = rows.cpu().numpy(), codes.cpu().numpy()
        self._refuse(at, of)
        new = ~self._sets[at].any(axis=1)
        if new.any():
            sets = self._sets.copy()
            sets[at[new]] = np.packbits(self._mechanism.select(of[new], self._bits), axis=1)
            self._write(sets)
            self._sets = sets
        found = np.unpackbits(self._sets[at], axis=1, count=self._mechanism.classes)
        return torch.from_numpy(found).to(torch.float64)

    def _refuse(self, rows: np.ndarray, codes: np.ndarray) -> None:
        if rows.ndim != 1 or rows.shape != codes.shape or rows.dtype != np.int64 or codes.dtype != np.int64:
            raise InputError("rows and codes: expected two lists of whole numbers, of one length")
        if len(rows) and not (
            rows.min() >= 0 and rows.max() < len(self._sets) and len(set(rows.tolist())) == len(rows)
        ):
            raise InputError(f"rows to release: expected numbers from 0 to {len(self._sets) - 1}, each once")
        if len(codes) and not (codes.min() >= 0 and codes.max() < self._mechanism.classes):
            raise InputError(f"codes to release: expected numbers from 0 to {self._mechanism.classes - 1}")

    def _read(self, path: Path) -> np.ndarray:
        sets = read_tensor(path, self._about).numpy()
        rows, width = self._sets.shape
        if sets.ndim != 2 or not rows - self._later <= len(sets) <= rows or sets.shape[1:] != (width,):
            raise CheckpointError(f"{path} was altered, or is newer than the rows beside it: {sets.shape}", hint=ANEW)
        if sets.dtype != np.uint8:
            raise CheckpointError(f"{path} was altered: it is of {sets.dtype}", hint=ANEW)
        return np.concatenate([sets, self._sets[len(sets) :]])

    def _write(self, sets: np.ndarray) -> None:
        if self._path is not None:
            write_tensor(self._path, torch.from_numpy(sets), self._about)


class KeptCounts:
    """Noisy counts of the classes that the encoder names, drawn once: after training, before its weights are kept.

    Without counts in the plan nothing is drawn; without a path they are kept in memory.
    """

    def __init__(self, plan: DiscretePlan, path: Path | None, bits: Bits) -> None:
        self._noise, self._path, self._bits = plan.counts, path, bits
        self._about = {"settings": json.dumps([len(plan.train), 0 if self._noise is None else self._noise.scale])}
        self._values: Tensor | None = None
        self._classes = plan.classes

    def draw(self, labels: Tensor, named: Tensor) -> None:
        """Draws and keeps the counts. Raises EnvironmentFault.

        A crash before the weights are kept leaves counts that never left the party: they are drawn anew with the
        encoder.
        """
        if self._noise is None:
            return
        self._values = self._noise.draw(labels, named, self._classes, self._bits)
        if self._path is not None:
            write_tensor(self._path, self._values, self._about)

    def get(self) -> Tensor:
        """The counts, int64 (classes, classes)."""
        if self._values is None and self._path is not None and self._path.exists():
            self._values = read_tensor(self._path, self._about)
        if self._values is None:
            raise CheckpointError("the counts of what the encoder names are missing", hint=ANEW)
        return self._values


PLACES = "rows.safetensors"
_BYTES = 32  # length of a key's hash
_ABOUT = {"settings": "keys of the rows that have a place"}


class RowPlaces:
    """Places of the rows that a party holds now; the last `later` were added after training.

    Args:
        path: file with a hash of every key.
        keys: those of the rows in their current numbering, distinct, normalised.
        trained: number of rows of the run's alignment.

    Raises CheckpointError if the file is missing in a prediction, is damaged, or has other rows.
    """

    def __init__(self, path: Path, keys: Sequence[str], trained: int, *, predicts: bool) -> None:
        self._path = path
        hashes = [hashlib.blake2b(key.encode(errors="surrogatepass"), digest_size=_BYTES).digest() for key in keys]
        known = self._read()
        if known is None and predicts:
            raise CheckpointError(f"{path} is missing: it says which rows have released a code", hint=ANEW)
        if known is not None and (len(known) < trained or (not predicts and known[:trained] != hashes)):
            raise CheckpointError(f"{path} is of other rows than this run's", hint=ANEW)
        there = {value: place for place, value in enumerate(known or ())}
        places = [there.setdefault(value, len(there)) for value in hashes]
        self._places, self._hashes, self.total = torch.tensor(places, dtype=torch.int64), list(there), len(there)
        self.later, self._on_disk = self.total - trained, len(known or ())

    def of(self, rows: Tensor) -> Tensor:
        """Places of rows in their current numbering, int64 (n,); durable when this returns."""
        if len(rows) and not (int(rows.min()) >= 0 and int(rows.max()) < len(self._places)):
            raise InputError(f"rows to release: expected numbers from 0 to {len(self._places) - 1}")
        if self._on_disk < self.total:
            self._write()
            self._on_disk = self.total
        return self._places[rows.cpu()]

    def _read(self) -> list[bytes] | None:
        if not self._path.exists():
            return None
        found = read_tensor(self._path, _ABOUT).numpy()
        if found.dtype != np.uint8 or found.ndim != 2 or found.shape[1] != _BYTES:
            raise CheckpointError(f"{self._path} was altered: it is of shape {found.shape}", hint=ANEW)
        return [line.tobytes() for line in found]

    def _write(self) -> None:
        values = np.frombuffer(b"".join(self._hashes), np.uint8).reshape(-1, _BYTES).copy()
        write_tensor(self._path, torch.from_numpy(values), _ABOUT)


def aligned_places(
    federation: FederationConfig,
    plan: PrivacyPlan | None,
    folder: PartyFolder,
    ids: Sequence[str] | None,
    trained: int,
    *,
    predicts: bool,
) -> RowPlaces | None:
    """Places of aligned rows; None if rows have no lasting draws, or keep their numbers. Raises CheckpointError.

    `ids` are keys of the rows in their current numbering, as the table has them.
    """
    if federation.align == "none" or as_codes(plan) is None:
        return None
    return RowPlaces(folder.codes / PLACES, federation.keys.normals(ids or ()), trained, predicts=predicts)


@dataclass(frozen=True)
class PlacedRelease:
    """A privacy stage that knows rows by their places."""

    places: RowPlaces
    release: Release

    def __call__(self, private: Tensor, *, evaluation: bool = False, rows: Tensor | None = None) -> Released:
        there = None if rows is None else self.places.of(rows)
        return self.release(private, evaluation=evaluation, rows=there)
