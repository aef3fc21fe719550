"""Coded computing, party side: data and models as field elements, sealed shares of them, and sums to respond with."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from colonnade.client.aggregation.key_agreement import Keys, Told
from colonnade.client.training.context import ClientContext
from colonnade.common.aggregation import fixed_point
from colonnade.common.aggregation.field import Field, secure_elements
from colonnade.common.aggregation.lagrange import NOTHING, Block, CodedRows, LagrangeCode
from colonnade.common.aggregation.masked_sums import confirmed, smallest_set
from colonnade.common.aggregation.messages import SetProof, SetProofs
from colonnade.common.aggregation.subject import EVALUATION, TRAINING, subject
from colonnade.common.aggregation.summed_sets import MemberRecord, SetProver, marked, marks
from colonnade.common.conversation.conversation import SERVER, Link
from colonnade.common.crypto.lengths import OVERHEAD, PROOF_BYTES
from colonnade.common.crypto.sealing import SealError, Seals
from colonnade.common.errors import ConfigError, ContractError, DataError, InputError
from colonnade.common.messaging.outgoing import nothing
from colonnade.common.messaging.raw import to_bytes, to_tensor
from colonnade.common.models.polynomial import Polynomial
from colonnade.common.protocols.fedvs import (
    LARGEST_EVALUATION,
    Answer,
    Bundle,
    Config,
    Opened,
    Preparation,
    Prepared,
    Senders,
    Shares,
    hash_of,
    place,
    signed_senders,
)

_SHARES = "data_shares"


@dataclass(frozen=True)
class Sum:
    """Terms of a party's responses in one stage.

    Args:
        senders: hash of the set of parties whose models are summed.
        weights: the members' model shares G_n(alpha_j), stacked: field elements, int64 (all columns, width); zeros for
            parties outside the set.
        masks: the sum of the members' shares of vanishing polynomials, int64 (coded rows, width); None if responses
            are not masked.
    """

    senders: str
    weights: Tensor
    masks: Tensor | None


class CodedParty:
    def __init__(
        self,
        ctx: ClientContext,
        server: Link,
        cfg: Config,
        model: Polynomial,
        code: LagrangeCode,
        rows: CodedRows,
        *,
        keys: Keys,
    ) -> None:
        self._ctx, self._server, self._cfg, self._model = ctx, server, cfg, model
        self._code, self._rows, self._verifier = code, rows, keys.server
        self._exchange, self._uniform = ShareExchange(ctx, server, keys.seals), secure_elements(code.field.p)
        self._least = max(smallest_set(ctx.federation), ctx.config.policy.min_parties or 0)
        self._record = MemberRecord(ctx.run_cache, ctx.session.run, ctx.federation.names)
        self._prover: SetProver | None = None
        if confirmed(ctx.federation):
            self._prover = SetProver(ctx.name, ctx.federation.names, keys.masks)
        self._rounding = ctx.state.keep("weight_rounding", lambda: ctx.draws.generator("weights"))
        self._told = Told(ctx, server)
        self._columns: tuple[int, ...] = ()
        self._sharing = ""  # number of the data sharing
        self._data = torch.empty(0)  # F_n(alpha_j) of all n, concatenated, int32 (all coded rows, all columns)
        self._largest = torch.empty(0)  # largest absolute entry of each column, quantised, int64 (1, columns)

    async def prepare(self) -> None:
        """Shares our data with all other parties, once in a run, chunk by chunk: steps 2 to 9.

        Raises:
            ConfigError: our data have more columns than agreed, or more rows are evaluated than can be masked.
            SealError: another party's share of its data was altered; without that share nothing can be computed.
        """
        ctx, round = self._ctx, self._ctx.round
        self._refuse_large_evaluations()
        columns = columns_of(ctx.name, self._model, self._cfg)
        self._largest = torch.zeros(1, columns, dtype=torch.int64)
        await self._server.send(Prepared(round, ctx.run_cache.number(_SHARES), columns))
        plan = await self._server.recv(Preparation, round, parties=len(ctx.federation.names))
        if plan is None:
            raise ContractError(SERVER, "Preparation", "", "before the first round", "a round")
        self._columns, self._sharing = self._check_plan(plan, columns), plan.sharing
        received = torch.empty(0 if not plan.anew else self._rows.total, sum(self._columns), dtype=torch.int32)
        for stage, block in enumerate(self._rows.chunks(self._cfg.chunk)):
            quantised = self._quantised(block)
            sizes = fixed_point.from_field(self._code.field, quantised).abs().amax(0, keepdim=True)
            self._largest = torch.maximum(self._largest, sizes)
            if plan.anew:
                about = subject(_SHARES, block.rows, plan.sharing, *self._columns)
                received[block.positions] = await self._share_data(round, stage, quantised, about)
        if plan.anew:
            ctx.run_cache.keep(_SHARES, plan.sharing, {"shares": received})
        self._data = ctx.run_cache.get(_SHARES)["shares"]

    def _check_plan(self, plan: Preparation, ours: int) -> tuple[int, ...]:
        """Returns every party's column count; raises if the server's plan cannot be followed."""
        ctx, columns = self._ctx, tuple(plan.columns.tolist())
        index, most = ctx.federation.names.index(ctx.name), self._cfg.columns
        if columns[index] != ours or not all(1 <= count <= most for count in columns):
            expected = f"1 to {most} each, and {ours} of ours"
            raise ContractError(SERVER, "Preparation", "columns", expected, str(list(columns)))
        if not plan.anew and plan.sharing != (held := ctx.run_cache.number(_SHARES)):
            raise ContractError(SERVER, "Preparation", "sharing", held or "a new one", plan.sharing)
        return columns

    async def share(self, round: int, stage: int, blocks: Sequence[Block]) -> Sum | None:
        """Shares our model with all other parties, and receives the set that this stage sums over: steps 14 to 20.

        `blocks` are of all responses in this stage. Returns None if the server has moved on without us, or we must not
        respond: we lack a member's share, the stage may already have been summed over another set, or too few parties
        confirm the set. Raises DataError if the sum could leave the field, SetError if another party was told another
        set.
        """
        coded, purpose = sum(len(block.positions) for block in blocks), EVALUATION if stage else TRAINING
        rows = torch.cat([block.rows for block in blocks])
        about = self._told.bind(subject(purpose, rows, round, stage, self._sharing, *self._columns))
        shares, sizes = self.model_shares(coded)
        opened = await self._exchange("model", round, stage, shares, sizes, about)
        if opened is None:
            return None
        names = self._ctx.federation.names
        await self._server.send(Opened(round, stage, marks(names, opened)))
        announced = await self._server.recv(Senders, round, parties=len(names))
        if announced is None:
            return None
        self._check_set(announced, stage)
        members = marked(names, announced.senders)
        entered, lacking = self._enter(round, stage, members), any(name not in opened for name in members)
        agreed = await self._confirm(round, stage, members, about, entered=entered, waits=not lacking)
        if not entered or lacking:
            empty = self._ctx.admit_masked(nothing(0, self._cfg.embedding, dtype=torch.int32))
            await self._server.send(Answer(round, stage, 0, hash_of(announced.senders), empty))
            return None
        if not agreed:
            return None
        return self._sum(hash_of(announced.senders), members, opened, coded)

    async def answer(self, round: int, stage: int, number: int, positions: Tensor, total: Sum, first: int) -> None:
        """Computes H_j for a block's coded rows and sends it: step 23. The block's row `first` in the stage selects its
        masks.
        """
        masks = None if total.masks is None else total.masks[first : first + len(positions)]
        h = self._code.answer(self._data[positions].to(torch.int64), total.weights, masks)  # (coded, width)
        await self._server.send(Answer(round, stage, number, total.senders, self._ctx.admit_masked(h)))

    def _quantised(self, block: Block) -> Tensor:
        values = self._model.powers(self._ctx.features[block.rows.clamp(min=0)]).cpu()
        values[block.rows == NOTHING] = 0
        return quantised_data(self._ctx.name, self._code.field, values, self._cfg.data_bits)

    async def _share_data(self, round: int, stage: int, quantised: Tensor, about: bytes) -> Tensor:
        """(rows of a chunk, columns) -> every party's shares of that party's rows, int32 (coded, all columns)."""
        code = self._code
        segments = quantised.view(code.segments, -1)  # (K, coded * columns)
        shares = code.encode(segments, self._uniform((code.masks, segments.shape[1])))
        coded = len(quantised) // code.segments
        names = self._ctx.federation.names
        sizes = {name: coded * columns for name, columns in zip(names, self._columns, strict=True)}
        opened = await self._exchange("data", round, stage, shares.to(torch.int32), sizes, about)
        if opened is None or len(opened) < len(names):
            lacking = [name for name in names if name not in (opened or {})]
            raise ContractError(SERVER, "Bundle", "boxes", "everybody's data shares", f"none of {', '.join(lacking)}")
        return torch.cat([opened[name].view(coded, -1) for name in names], dim=1)

    def model_shares(self, coded: int) -> tuple[Tensor, dict[str, int]]:
        """G_n at all points, followed by shares of a vanishing polynomial if responses are masked."""
        code, cfg, names = self._code, self._cfg, self._ctx.federation.names
        weights = self.round_weights()
        self.refuse_if_wrapping(weights)
        shares = code.encode_same(weights.flatten(), self._uniform((code.masks, weights.numel())))
        masked = coded * cfg.embedding if cfg.masked_answers else 0
        if masked:
            shares = torch.cat([shares, code.vanishing(self._uniform((code.freedom, masked)))], dim=1)
        sizes = {name: columns * cfg.embedding + masked for name, columns in zip(names, self._columns, strict=True)}
        return shares.to(torch.int32), sizes

    def round_weights(self) -> Tensor:
        bits = self._cfg.weight_bits
        return rounded_weights(self._ctx.name, self._code.field, self._model, bits, self._rounding)

    def refuse_if_wrapping(self, weights: Tensor) -> None:
        field, parties = self._code.field, len(self._ctx.federation.names)
        times = margin(field, self._largest, weights, parties)
        if times < 1:
            self._ctx.warn(f"entries of the embedding can reach {1 / times:.3g} times what there is room for")
        refuse_wrapping(self._ctx.name, field, times, parties)

    def _check_set(self, announced: Senders, stage: int) -> None:
        if announced.stage != stage:
            raise ContractError(SERVER, "Senders", "stage", str(stage), str(announced.stage))
        if self._verifier is not None:
            content = signed_senders(self._ctx.session, announced.round, stage, announced.senders)
            self._verifier.check(
                f"the set of senders of round {announced.round}", content, to_bytes(announced.signature)
            )
        members = int(announced.senders.count_nonzero())
        if members < self._least:
            expected = f"at least {self._least} parties, as federation.quorum, blinding and our policy have it"
            raise ContractError(SERVER, "Senders", "senders", expected, str(members))

    async def _confirm(
        self, round: int, stage: int, members: Collection[str], about: bytes, *, entered: bool, waits: bool
    ) -> bool:
        """Proves the set to all other parties, and waits until enough of them have; returns False if they will not.

        If the stage is already bound to another set, not `entered`, we do not confirm this one; we only wait if we
        answer.
        """
        if self._prover is None:
            return True
        names = self._ctx.federation.names
        if not entered:
            await self._server.send(SetProof(round, stage, torch.empty(0, PROOF_BYTES, dtype=torch.uint8)))
            return False
        proofs = self._prover.proofs(round, members, about=about, stage=stage, to=names)
        await self._server.send(SetProof(round, stage, proofs))
        while waits:
            received = await self._server.recv(SetProofs, round, parties=len(names), proof=PROOF_BYTES)
            if received is None:
                return False
            if received.stage >= stage:  # otherwise it belongs to the previous stage, which we did not answer
                enough = self._cfg.confirming(len(names))
                self._prover.check(round, members, received.proofs, about=about, stage=stage, enough=enough)
                return True
        return False

    def _enter(self, round: int, stage: int, members: Sequence[str]) -> bool:
        """Records the set durably before anything is computed over it; False if the stage is bound to another set."""
        where = place(round, stage)
        if self._record.enter(where, members):
            return True
        before = ", ".join(sorted(self._record.bound(where) or ()))
        self._ctx.warn(f"round {round} may have been summed over {before}: nothing is sent for it over another set")
        return False

    def _refuse_large_evaluations(self) -> None:
        if self._cfg.masked_answers and self._rows.evaluated > LARGEST_EVALUATION:
            raise ConfigError(
                f"{self._rows.evaluated} coded rows of validation and test: with federation.protocol.masked_answers "
                f"there are masks for {LARGEST_EVALUATION} at most",
                hint="set federation.rows.validation and test lower, or take more segments",
            )

    def _sum(self, senders: str, members: Sequence[str], opened: dict[str, Tensor], coded: int) -> Sum:
        width, sizes = self._cfg.embedding, zip(self._ctx.federation.names, self._columns, strict=True)
        parts = [
            opened[name][: columns * width] if name in members else torch.zeros(columns * width, dtype=torch.int32)
            for name, columns in sizes
        ]
        weights = torch.cat(parts).to(torch.int64).view(-1, width)
        if not self._cfg.masked_answers:
            return Sum(senders, weights, None)
        tails = torch.stack([opened[name][-coded * width :].to(torch.int64) for name in members])
        return Sum(senders, weights, (tails.sum(0) % self._code.field.p).view(coded, width))


@dataclass(frozen=True)
class ShareExchange:
    """Sends every other party its share, and receives ours from each."""

    ctx: ClientContext
    server: Link
    seals: Seals

    async def __call__(
        self, purpose: str, round: int, stage: int, shares: Tensor, sizes: Mapping[str, int], about: bytes
    ) -> dict[str, Tensor] | None:
        """Sends shares and waits for the bundle of the other parties' shares.

        Args:
            purpose: boxes are bound to it, to the round and to the stage.
            shares: one for each party in roster order, ours included, int32 (parties, elements).
            sizes: elements of every party's shares.
            about: hash of what the shares are for; a receiver that was told something else cannot open them.

        Returns the shares that could be opened and our own, int32 (elements,) by sender; None if the server has moved
        on without us.
        """
        names, me = self.ctx.federation.names, self.ctx.name
        rows = shares.contiguous().view(torch.uint8).numpy()
        others = {name: row.data for name, row in zip(names, rows, strict=True) if name != me}
        sealed = self.seals.boxes(others, purpose, round, stage, about=about)
        for to, box in zip(others, sealed.numpy(), strict=True):
            self.ctx.receipts.sent(to, round, stage, box.data)
        await self.server.send(Shares(round, stage, self.ctx.admit_masked(sealed)))
        bundle = await self.server.recv(Bundle, round, parties=len(names))
        if bundle is None:
            return None
        if bundle.stage != stage:
            raise ContractError(SERVER, "Bundle", "stage", str(stage), str(bundle.stage))
        opened = self._open(purpose, bundle, sizes, about)
        opened[me] = shares[names.index(me)]
        return opened

    def _open(self, purpose: str, bundle: Bundle, sizes: Mapping[str, int], about: bytes) -> dict[str, Tensor]:
        names, lengths = self.ctx.federation.names, bundle.lengths.tolist()
        if any(length < 0 for length in lengths) or sum(lengths) != len(bundle.boxes):
            expected = f"lengths that add up to {len(bundle.boxes)} bytes"
            raise ContractError(SERVER, "Bundle", "lengths", expected, str(lengths))
        boxes, at = bundle.boxes.numpy().data, 0
        opened: dict[str, bytes] = {}
        for name, length in zip(names, lengths, strict=True):
            box, at = boxes[at : at + length], at + length
            if name == self.ctx.name:
                continue
            if length:
                try:
                    if len(box) != (size := 4 * sizes[name] + OVERHEAD):
                        raise SealError(f"{name!r} has sealed {len(box)} bytes, not {size}")
                    opened[name] = self.seals.open(name, box, purpose, bundle.round, bundle.stage, about=about)
                except SealError as altered:
                    self.ctx.warn(f"round {bundle.round}: {altered}")
            self.ctx.receipts.received(name, bundle.round, bundle.stage, box if name in opened else None)
        elements = to_tensor(b"".join(opened.values())).view(torch.int32)
        return dict(zip(opened, torch.split(elements, [sizes[name] for name in opened]), strict=True))


def polynomial(party: str, model: nn.Module) -> Polynomial:
    """Checks that a model can be computed on shares. Raises ConfigError."""
    if type(model) is not Polynomial:  # a subclass could mix rows in its powers
        raise ConfigError(
            f"parties.{party}.model: fedvs computes on shares, which only a polynomial network can",
            hint="model: {name: polynomial, layers: 2}",
        )
    return model


def columns_of(party: str, model: Polynomial, config: Config) -> int:
    """Number of columns of a party's data, including powers and bias; ConfigError if more than agreed."""
    if (columns := len(model.weight)) > config.columns:
        raise ConfigError(
            f"{party} has {columns} columns with powers and bias, federation.protocol.columns is {config.columns}",
            hint="raise it, in every member's file, or lower the model's layers",
        )
    return columns


def quantised_data(party: str, field: Field, values: Tensor, bits: int) -> Tensor:
    """X_n as int64 in the shape of `values`. Raises DataError, naming the party."""
    try:
        return fixed_point.quantise_data(field, values, bits)
    except InputError as bad:
        raise _unfit(party, "the data", field, bits, bad.hint) from None


def rounded_weights(party: str, field: Field, model: Polynomial, bits: int, draws: torch.Generator) -> Tensor:
    """W_n after stochastic rounding, int64 (columns, width). Raises DataError, naming the party."""
    try:
        return fixed_point.quantise_model(field, model.weight.detach().cpu(), bits, draws)
    except InputError as bad:
        raise _unfit(party, "the weights", field, bits, bad.hint) from None


def margin(field: Field, largest: Tensor, weights: Tensor, parties: int) -> float:
    """Ratio of a party's share of ±p/2 (1/N) to its largest embedding: below 1, the sum over all N parties could wrap.

    It depends on private rows, so it stays at the party. `largest` has the largest absolute entry of each column,
    quantised, int64 (1, columns); `weights` are W_n as field elements, (columns, width).
    """
    return fixed_point.headroom(field, [parties * fixed_point.sum_bound(field, largest, weights)])


def refuse_wrapping(party: str, field: Field, margin: float, parties: int) -> None:
    """Raises DataError if the margin is below 1; the error omits its value, because errors are sent to the server."""
    if margin < 1:
        raise DataError(
            f"{party}: its embedding could leave its part of the field, +-{field.p // 2 // parties} of {field.p} "
            f"elements among {parties} parties, and the sum wrap around",
            hint="lower federation.protocol.data_bits or weight_bits, scale the data, or take a larger prime",
        )


def _unfit(party: str, whose: str, field: Field, bits: int, hint: str) -> DataError:
    text = f"{party}: {whose} are not all finite, or with {bits} bits leave ±p/2 for p = {field.p}"
    return DataError(text, hint=hint)
