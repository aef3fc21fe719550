"""Transcripts of simulated parties."""

from __future__ import annotations

from functools import partial

from colonnade.client.training.context import ClientContext
from colonnade.client.transcript.transcript import PartyTranscript, always_in_step, report_finding
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.conversation.conversation import Carrier, Link
from colonnade.common.observability.telemetry import Telemetry


def begin_transcript(ctx: ClientContext, link: Link, send: Carrier, telemetry: Telemetry) -> PartyTranscript:
    """Begins a party's transcript over its link, before anything arrives."""
    federation = ctx.federation
    transcript = PartyTranscript(
        ctx.name, federation, ctx.session, ctx.identity,
        in_step=always_in_step(federation, CONTRACTS[federation.protocol.name]),
        send=send, report=partial(report_finding, telemetry, ctx.name), fail=link.lose,
    )  # fmt: skip
    ctx.keyed, ctx.receipts = transcript.keyed, transcript.receipts
    link.deliver = transcript.inward(link.deliver)  # type: ignore[method-assign, assignment]
    transcript.begin()
    return transcript
