"""A configuration's privacy guarantees on the rows of a run, in words."""

from __future__ import annotations

from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.members import ServerConfig
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.privacy.accounting.accountant import epsilon
from colonnade.common.privacy.accounting.plan import Sentence, describe_plan, little
from colonnade.common.privacy.labels import label_noise
from colonnade.server.privacy import expected_releases, refuse_large_delta
from colonnade.server.training.context import ServerContext

NO_VALIDATION = "there are no validation rows to choose a round by"
NO_STOP = "federation.stop is none"
PRIVATE = "under federation.privacy evaluations are releases, so that an early stop has to be asked for"
"""Reasons to use the last round's model."""


def which_model(federation: FederationConfig, schedule: Schedule) -> Sentence:
    """Which round's model a run will keep, and when it may end early."""
    last = f"model: of the last round, {schedule.rounds}: "
    if not len(schedule.partition.validation):
        learned = "overfitting stays unnoticed; federation.rows.validation: 0.1 shows it"
        return Sentence(f"{last}{NO_VALIDATION}, and {learned}", weak=True)
    if federation.stop is None:
        asked = "federation.stop: {} keeps the best round's by validation rows"
        return Sentence(f"{last}{NO_STOP if federation.privacy is None else PRIVATE}; {asked}")
    patience = schedule.patience
    until = [
        *([] if patience is None else [f"{patience} evaluations without a better one end it"]),
        *([] if federation.stop.drop is None else [f"so does a drop of {federation.stop.drop:g}"]),
    ]
    end = f"; {', '.join(until)}" if schedule.earliest_end < schedule.rounds else ""
    return Sentence(f"model: of the best of at most {schedule.rounds} rounds, by the validation rows{end}")


def planned(federation: FederationConfig, server: ServerConfig | None, schedule: Schedule) -> list[Sentence]:
    """A sentence for each guarantee, and a warning for each that protects little, prefixed by its key.

    `server` is None where it is not known, as in a party's file. Raises ConfigError if delta of
    `server.privacy.answers` is too large for the number of training rows.
    """
    found: list[tuple[str, Sentence]] = []
    if schedule.privacy is not None:
        active = "the server's own columns take part without noise" if server is not None and server.active else ""
        said = describe_plan(schedule.privacy, len(federation.names), active)
        found += [("federation.privacy", each) for each in said]
    if server is not None:
        found += [("server.privacy.labels", each) for each in _labels(federation, server)]
        found += [("server.privacy.answers", each) for each in _answers(federation, server, schedule)]
        found += _uncovered(server)
    return [Sentence(f"{key}: {said.text}", said.weak) for key, said in found]


def tell_planned(ctx: ServerContext) -> None:
    """Reports the guarantees as events when a run begins."""
    for said, weak in planned(ctx.federation, ctx.config, ctx.schedule):
        ctx.telemetry.event("privacy", party=SERVER, said=said, weak=weak)


def _labels(federation: FederationConfig, server: ServerConfig) -> list[Sentence]:
    if (config := server.privacy.labels) is None:
        return []
    spent = label_noise(config, federation.outputs).epsilon
    if config.seeded:
        said = f"no guarantee, since the seed is known; by the noise alone a label: epsilon {spent:.2f}"
        return [Sentence(said, weak=True)]
    return [Sentence(f"a training label: epsilon {spent:.2f} at delta 0"), *little(spent)]


def _uncovered(server: ServerConfig) -> list[tuple[str, Sentence]]:
    """Warnings about settings that use validation labels without noise although labels are private."""
    if server.privacy.labels is None and server.privacy.answers is None:
        return []
    chosen = {
        "decide": server.decide is not None and server.decide.by is not None,
        "calibrate": server.calibrate != "none",
    }
    said = "it is computed from true labels of validation rows, which no noise covers, and predictions depend on it"
    return [(f"server.{key}", Sentence(said, weak=True)) for key, there in chosen.items() if there]


def _answers(federation: FederationConfig, server: ServerConfig, schedule: Schedule) -> list[Sentence]:
    if (config := server.privacy.answers) is None:
        return []
    refuse_large_delta(config, len(schedule.partition.train))
    releases = expected_releases(schedule, len(federation.names), arrivals=federation.protocol.asynchronous)
    spent = epsilon(releases, config.noise_multiplier, config.delta, "replace", config.accounting)
    noise = f"about {releases} releases of a row, noise multiplier {config.noise_multiplier:g}"
    void = "no guarantee, since the seed is known; by the noise alone " if config.seeded else ""
    said = f"{void}a training label: epsilon {spent:.2f} at delta {config.delta:g} ({noise})"
    return [Sentence(said, weak=config.seeded), *little(spent)]
