"""`federation` of a configuration file, with its roster: equal at all members, and compared when parties join."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal
from weakref import ReferenceType, ref

from pydantic import BaseModel, Field, SerializeAsAny, field_validator, model_validator

from colonnade.common.config.alignment import KeysConfig
from colonnade.common.config.compression import CompressConfig
from colonnade.common.config.data.columns import PartyIndex
from colonnade.common.config.privacy import Privacy
from colonnade.common.config.protocol import ProtocolConfig
from colonnade.common.config.run_options import (
    MOST_BACK_OFFS,
    AdjustConfig,
    CheckpointConfig,
    EvaluateConfig,
    Quorum,
    QuorumConfig,
    RowsConfig,
    Shuffle,
    StopConfig,
    Task,
    TimeoutsConfig,
    TranscriptConfig,
)
from colonnade.common.crypto.pki.names import SERVER, check_fingerprint, check_party_name
from colonnade.common.errors import ConfigError, IdentityError, shown
from colonnade.common.section import Section

_LONGEST = 100  # bytes in UTF-8: a folder's name is the id, a member's name of 63 and a time, and holds 255
_BETWEEN = " ._-"
LARGEST = 10_000
_HINT = "a number, a list of names, or names with their certificates' fingerprints"


def read_roster(value: Any) -> Any:
    """Reads `federation.parties`: name -> fingerprint, "" if it is given later.

    A number stands for party1, party2, ...; a list gives names alone.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        if not 1 <= value <= LARGEST:
            raise ConfigError(f"federation.parties = {value}: expected 1 to {LARGEST}", hint=_HINT)
        width = len(str(value))
        return {f"party{number:0{width}}": "" for number in range(1, value + 1)}
    if isinstance(value, list):
        seen = set[str]()
        for place, name in enumerate(value):
            if not isinstance(name, str):
                said = f"federation.parties.{place}{shown(name) or f' = {name!r}'}: expected a name"
                raise ConfigError(said, hint=f"put it in quotes; {_HINT}")
            if name in seen:
                raise ConfigError(f"federation.parties: {name!r} is listed twice", hint="give each party its own name")
            seen.add(name)
        return dict.fromkeys(value, "")
    if not isinstance(value, dict):
        raise ConfigError(f"federation.parties{shown(value)}: expected a roster", hint=_HINT)
    # The fingerprint of a name without a value is given later.
    return {name: "" if pin is None else pin for name, pin in value.items()}


def check_roster(roster: dict[str, str]) -> dict[str, str]:
    """Checks a roster and returns it with normalised fingerprints."""
    if not roster:
        raise ConfigError("federation.parties: there are none", hint=_HINT)
    try:
        return {check_party_name(name): check_pin(name, pin) for name, pin in roster.items()}
    except IdentityError as wrong:
        raise ConfigError(f"federation.parties: {wrong}", hint=wrong.hint) from None


def check_pin(name: str, value: str) -> str:
    """A member's normalised fingerprint, or ""."""
    try:
        return value and check_fingerprint(value)
    except IdentityError as wrong:
        key = "federation.server" if name == SERVER else f"federation.parties.{name}"
        raise ConfigError(f"{key}: {wrong}", hint=wrong.hint) from None


def check_id(value: str) -> str:
    """Returns `federation.id` if it may name folders: 1 to 100 bytes of letters, digits and ` ._-`, alphanumeric at
    both ends.

    Runs of versions before 0.3 may have other ids; they are read and resumed in place, and no folder is named after
    them.
    """
    if not _names_folder(value):
        raise ConfigError(
            f"federation.id = {value[:60]!r}{'...' if len(value) > 60 else ''}: it names folders, and cannot",
            hint=f"use up to {_LONGEST} letters, digits, spaces, ., _ and -, with a letter or a digit at both ends",
        )
    return value


def _names_folder(value: str) -> bool:
    inner = all(each.isalnum() or each in _BETWEEN for each in value)
    ends = value[:1].isalnum() and value[-1:].isalnum()
    return inner and ends and len(value.encode(errors="surrogatepass")) <= _LONGEST


Recovery = Literal["none", "alone", "colluding"]
"""How the sum of a training round survives a party that vanishes: not at all, or by shares, against these liars."""


class BlindingConfig(Section):
    """`federation.blinding`: sums whose terms the server does not see if they are `blinded`; `least` in FedVS too."""

    bound: float = Field(default=64.0, gt=0, description="B, the magnitude to which every number is clipped")
    bits: Literal[32, 64] = Field(default=32, description="b, bits of the words that are summed")
    least: int = Field(
        default=3, ge=2, description="minimum number of parties of a sum; of 2, each knows the other's term"
    )
    recovery: Recovery = Field(
        default="none",
        description="sum of a training round in which a party drops out: none (the round is "
        "left out); alone, by shares of keys that floor(n/2) + 1 parties open, against a server that lies alone; "
        "colluding, that floor(2n/3) + 1 open, against one that lies together with fewer than n/3 parties",
    )

    def threshold(self, parties: int) -> int:
        """t, the number of parties that open a key together; 0 without recovery."""
        return {"none": 0, "alone": parties // 2 + 1, "colluding": 2 * parties // 3 + 1}[self.recovery]


AlignChecks = Literal["none", "signed", "planted", "proofs"]
# Keys of the federation section that a resumed run may change.
_MAY_CHANGE = (
    "parties", "server", "rounds", "epochs", "quorum", "timeouts", "checkpoint", "absence", "stop", "back_off",
    "transcript",
)  # fmt: skip
# Without differential privacy, whose costs depend on the number of local steps, these too.
STEPS = ("protocol.tau", "protocol.local_steps")


# Runs begun before a key existed stored no hash for it: a key at the value that means the same has none.
_NEWER: Mapping[str, Any] = {
    "privacy.accounting": "renyi", "loss": "", "stop.metric": None, "protocol.damping": "none",
    "back_off": 0, "privacy.predictions": 0, "protocol.combine": "sum", "protocol.own": "exact",
    "privacy.once": None, "align_checks": "none", "blinding.recovery": "none", "public_start": False, "keys.parts": 1,
}  # fmt: skip
# Every party of a simulation asks for the hashes of one section, all and lasting ones. By identity: a copy with other
# values is another section.
_PIN = "parties."
PINS = "parties.*"  # key of a Hello for the certificates of all parties

_WHOLE, _DIGITS = 64, 2  # of the hash of all certificates, and of each
_hashed: dict[int, tuple[ReferenceType[FederationConfig], dict[str, str], dict[str, str]]] = {}


class FederationConfig(Section):
    """The agreed section, equal at all members."""

    id: str = Field(min_length=1, description="name of the federation; a party joins no other")
    protocol: SerializeAsAny[ProtocolConfig] = Field(description="the protocol: its name, or a section with its keys")
    parties: dict[str, str] = Field(
        description="the roster: names with the fingerprints of their certificates; a list of names; or a number"
    )
    server: str = Field(default="", description="fingerprint of the server's certificate; empty: not pinned")
    task: Task = Field(default="classification", description="classification predicts classes, regression numbers")
    classes: int | tuple[str, ...] = Field(
        default=0, description="number of classes, or their names in order; required in classification"
    )
    targets: int = Field(default=0, ge=0, description="in regression: numbers predicted for a row, 1 unless given")
    loss: str = Field(
        default="",
        description="poisson (numbers that are counts, in boosted models and regressions), or "
        "a package's training loss (docs/plug_ins.md); left out, the task's own",
    )
    epochs: int = Field(default=0, ge=0, description="passes over the training rows; either this or `rounds`")
    rounds: int = Field(default=0, ge=0, description="batches exchanged in the run; either this or `epochs`")
    batch: int = Field(
        ge=1,
        description="rows of a training batch (of none in rounds over all rows), and of a block in an evaluation",
    )
    shuffle: Shuffle = Field(
        default=False,
        description="a new order of the training rows in every epoch: false, full (or true), or for tables on disk "
        "{blocks: 4096, group: 16}: blocks of rows in a new order, and the rows of 16 of them mixed (docs/scale.md)",
    )
    seed: int = Field(
        default=0,
        ge=0,
        description="seed of orders and partitions, which every member knows; with `public_start` and in a simulation "
        "of initial models too",
    )
    align: Literal["none", "sorted", "psi"] = Field(
        default="none",
        description="alignment of the members' rows: none (same rows, same order), sorted (by key, without secrecy), "
        "psi (common rows by private set intersection)",
    )
    align_checks: AlignChecks = Field(
        default="none",
        description="checks of an alignment by psi among members who may lie (docs/alignment_checks.md): none; signed "
        "(members commit themselves to their lists, and sign every list that they pass on); planted (signed, and 5 % "
        "of a list are keys that must be found in the end); proofs (signed, and members prove that they raise lists to "
        "one exponent; needs colonnade[proofs] and two parties or more)",
    )
    keys: KeysConfig = Field(default=KeysConfig(), description="comparison of row keys, with `align`")
    rows: RowsConfig = Field(default=RowsConfig(), description="training, validation and test rows")
    evaluate: EvaluateConfig = Field(default=EvaluateConfig(), description="rounds after which the model is evaluated")
    stop: StopConfig | None = Field(
        default=StopConfig(),
        description="early stop of a run, and the best round's model at its end; none, or null: neither. Left out, "
        "there is none without validation rows, with `privacy`, under which evaluations are releases, and in runs that "
        "end when they have converged",
    )
    quorum: QuorumConfig = Field(
        default=QuorumConfig(),
        description="responses that a round waits for: `wait` (all), {deadline: SECONDS}, {fastest: K}, {threshold: R}",
    )
    timeouts: TimeoutsConfig = Field(default=TimeoutsConfig(), description="time limits for members that are silent")
    checkpoint: CheckpointConfig = Field(default=CheckpointConfig(), description="intervals of checkpoints")
    transcript: TranscriptConfig = Field(
        default=TranscriptConfig(), description="comparison of what the server tells the parties"
    )
    absence: Literal["rollback", "wait", "continue"] = Field(
        default="rollback",
        description="when a party disconnects: rollback stops and returns to the newest common checkpoint; wait "
        "finishes the round and stops; continue goes on if the quorum allows it",
    )
    back_off: int = Field(
        default=0,
        ge=0,
        le=MOST_BACK_OFFS,
        description="times that a run which diverges goes back to its newest sound checkpoint, each time with all "
        "learning rates times 0.3; 0: it ends with an error",
    )
    compress: CompressConfig = Field(default=CompressConfig(), description="compression of tensors in messages")
    blinding: BlindingConfig = Field(default=BlindingConfig(), description="sums whose terms the server does not see")
    privacy: Privacy | None = Field(
        default=None, description="differential privacy of what the parties send; left out, nothing is protected"
    )
    adjust: AdjustConfig = Field(default=AdjustConfig(), description="terms that parties add to their own loss")
    participation: float = Field(default=1.0, gt=0, le=1, description="share of the parties in a training round")
    benchmark: bool = Field(default=False, description="the data are not secret: allows evaluations in the clear")
    public_start: bool = Field(
        default=False,
        description="the members' first weights, dropout and other own draws follow from `seed`: equal runs are equal "
        "to the last bit, and every member can compute the others' first models; it permits nothing else. Left out, "
        "each member draws them in secret",
    )

    @field_validator("stop", mode="before")
    @classmethod
    def _no_stop(cls, value: Any) -> Any:
        return None if value == "none" else value

    @model_validator(mode="after")
    def _stop_by_default(self) -> FederationConfig:
        """Drops the default early stop without validation rows, if evaluations cost privacy, or if the last round has
        the least loss.
        """
        undesired = not self.rows.validation or self.privacy is not None or self.protocol.converges
        if "stop" not in self.model_fields_set and undesired:
            self.__dict__["stop"] = None  # and not among the keys that were set
        return self

    @field_validator("parties", mode="before")
    @classmethod
    def _short_roster(cls, value: Any) -> Any:
        return read_roster(value)

    @field_validator("parties")
    @classmethod
    def _names_and_fingerprints(cls, value: dict[str, str]) -> dict[str, str]:
        return check_roster(value)

    @field_validator("server")
    @classmethod
    def _server_fingerprint(cls, value: str) -> str:
        return check_pin(SERVER, value)

    @property
    def outputs(self) -> int:
        """d_c, the number of classes; in a regression, of values predicted per row."""
        if self.task == "regression":
            return self.targets or 1
        return self.classes if isinstance(self.classes, int) else len(self.classes)

    @property
    def names(self) -> tuple[str, ...]:
        """The parties in the roster's order."""
        return tuple(self.parties)

    @property
    def fewest_summed(self) -> int:
        """Minimum parties in a blinded sum: all, unless a round may continue without some."""
        need = self.quorum.need
        return len(self.parties) if need == "all" else max(need, self.blinding.least)

    @property
    def round_quorum(self) -> Quorum:
        need = None if self.quorum.need == "all" else self.quorum.need
        return Quorum(need, self.quorum.grace, self.timeouts.answer)

    @property
    def pins(self) -> dict[str, str]:
        """Fingerprint of every member's certificate, including the server's."""
        return {SERVER: self.server, **self.parties}

    def party_index(self, member: str) -> PartyIndex:
        """A member's place among those that hold columns; an active party is first."""
        holders = (SERVER, *self.names) if self.protocol.active else self.names
        return PartyIndex(holders.index(member), len(holders))

    def lasting_hashes(self) -> dict[str, str]:
        """`hashes` of the values that cannot change during a run: results depend on them, the run's length does not."""
        return dict(self._both_hashes()[1])

    def hashes(self) -> dict[str, str]:
        """SHA-256 of every value by its dotted key, in hex, so that two ends can name the keys that differ."""
        return dict(self._both_hashes()[0])

    def stated(self) -> dict[str, str]:
        """`hashes` as a Hello states them: one hash of all certificates, followed by two digits of each party's.

        The digits tell at little cost which certificates differ.
        """
        hashes = self._both_hashes()[0]
        pins = [found for key, found in hashes.items() if key.startswith(_PIN)]
        whole = hashlib.sha256("".join(pins).encode()).hexdigest()
        others = {key: found for key, found in hashes.items() if not key.startswith(_PIN)}
        return {**others, PINS: whole + "".join(pin[:_DIGITS] for pin in pins)}

    def other_pins(self, theirs: str) -> list[str]:
        """Keys of certificates that differ from those stated by another member under `PINS`; `PINS` if its digits do
        not tell.
        """
        ours = self.stated()[PINS]
        digits = [each[_WHOLE:] for each in (ours, theirs)]
        if len(digits[0]) != len(digits[1]):
            return [PINS]
        places = range(0, len(digits[0]), _DIGITS)
        differ = [digits[0][at : at + _DIGITS] != digits[1][at : at + _DIGITS] for at in places]
        return [f"{_PIN}{name}" for name, other in zip(self.parties, differ, strict=True) if other] or [PINS]

    def _both_hashes(self) -> tuple[dict[str, str], dict[str, str]]:
        number = id(self)
        if (known := _hashed.get(number)) is None or known[0]() is not self:
            # The roster's order is a value too: it assigns columns to parties.
            leaves = [*_leaves(self), ("parties", list(self.parties))]
            hashes = {
                key: hashlib.sha256(json.dumps(value).encode()).hexdigest()
                for key, value in leaves
                if key not in _NEWER or value != _NEWER[key]
            }
            # "parties" is the roster's order; "parties.NAME" is a fingerprint, which may be renewed.
            free = () if self.privacy is not None else STEPS
            lasting = {
                key: found
                for key, found in hashes.items()
                if key == "parties" or (key.split(".")[0] not in _MAY_CHANGE and key not in free)
            }
            gone = ref(self, lambda _: _hashed.pop(number, None))
            known = _hashed[number] = gone, hashes, lasting
        return known[1:]


def _leaves(model: BaseModel) -> list[tuple[str, Any]]:
    def walk(prefix: str, value: Any) -> list[tuple[str, Any]]:
        if isinstance(value, dict):
            return [leaf for key, below in value.items() for leaf in walk(f"{prefix}.{key}", below)]
        return [(prefix, value)]

    return [leaf for key, value in model.model_dump(mode="json").items() for leaf in walk(key, value)]
