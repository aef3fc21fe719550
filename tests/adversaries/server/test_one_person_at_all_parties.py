"""A party's epsilon is read as a person's; a person's row lies at every party, and all of them release it.

Bounds: no cell.
"""

from __future__ import annotations

import pytest

from colonnade.common.privacy.accounting.accountant import gaussian_sigma
from colonnade.reports.guarantee import describe_privacy
from colonnade.reports.run_page.privacy import headline
from colonnade.server.member.summary import protection
from tests.support.federation import config, federate
from tests.support.oracles import exact_epsilon

SPLIT = {"name": "split", "embedding": 8}
PRIVATE = "federation.privacy={clip: 1, epsilon: 8, delta: 1e-5, accounting: exact, adjacency: replace%s}"
SHORT = ("federation.rounds=3", "federation.epochs=0")


def spent(parties: int, *sets: str) -> dict:
    outcome = federate(config(SPLIT, *SHORT, f"federation.parties={parties}", *sets))
    counts = {name: p.releases for name, p in outcome.privacy.items()}
    return {"protocol": "split", **protection(outcome.server, counts)}


@pytest.mark.parametrize(("parties", "person"), [(2, 12), (4, 19), (14, 45)])
def test_eight_a_party_is_more_for_a_person(parties: int, person: float) -> None:
    said = spent(parties, PRIVATE % "")
    assert max(said["epsilon"].values()) == pytest.approx(8, abs=0.02)
    assert said["person"]["epsilon"] == pytest.approx(person, abs=0.6)
    assert (said["person"]["parties"], said["person"]["delta"]) == (parties, 1e-5)


def test_a_run_that_ends_early_has_the_epsilon_of_its_plan() -> None:
    """The server chooses the end by the releases, so that those that were not made count."""
    outcome = federate(config(SPLIT, *SHORT, PRIVATE % ""))
    whole = {name: p.releases for name, p in outcome.privacy.items()}
    early, none = dict.fromkeys(whole, 2), dict.fromkeys(whole, 0)
    said, ended = protection(outcome.server, whole), protection(outcome.server, early)
    assert {**ended["privacy"], "releases": whole} == said["privacy"] and ended["privacy"]["planned"] == whole
    assert (ended["epsilon"], ended["person"]) == (said["epsilon"], said["person"])
    for words in (describe_privacy, headline):
        made = f"of all {max(whole.values())} planned releases, 2 were made"
        assert made in words({"protocol": "split", **ended}) and made[:6] not in words({"protocol": "split", **said})
    assert set(protection(outcome.server, none)["epsilon"].values()) == {0}


def test_it_equals_another_librarys_composition_of_all_releases() -> None:
    said = spent(4, PRIVATE % "")
    sigma, releases = said["privacy"]["noise_multiplier"], sum(said["privacy"]["releases"].values())
    theirs = exact_epsilon([(sigma, int(releases))], 1e-5, replace=True)
    assert said["person"]["epsilon"] == pytest.approx(theirs, rel=0.005)


def test_console_and_report_show_both_with_delta() -> None:
    said = spent(4, PRIVATE % "")
    person = f"{said['person']['epsilon']:.2f}"
    for words in (describe_privacy(said), headline(said)):
        assert "8.0" in words or "7.9" in words
        assert person in words and "person" in words and "at delta 1e-05" in words


def test_without_a_partys_spent_budget_there_is_no_bound_for_the_person() -> None:
    outcome = federate(config(SPLIT, *SHORT, PRIVATE % ""))
    counts = {name: p.releases for name, p in list(outcome.privacy.items())[1:]}
    said = protection(outcome.server, counts)
    assert said["person"]["epsilon"] is None and "party1" in said["person"]["void"]
    assert "no guarantee for a person" in describe_privacy({"protocol": "split", **said})


def test_columns_of_the_server_leave_no_bound_for_the_person() -> None:
    outcome = federate(config({"name": "agg_vfl", "embedding": 8}, *SHORT, PRIVATE % ""))
    counts = {name: p.releases for name, p in outcome.privacy.items()}
    said = protection(outcome.server, counts)
    assert said["person"]["epsilon"] is None and "server" in said["person"]["void"]
    assert all(value is not None for value in said["epsilon"].values())


def test_a_person_has_no_guarantee_if_a_party_has_none() -> None:
    said = spent(2, PRIVATE % ", seeded: true")
    assert said["person"]["epsilon"] is None and "seed" in said["person"]["void"]


def test_the_rows_of_all_parties_are_composed_too() -> None:
    sets = (
        "federation.privacy={mechanism: adaptive, clip: 1, release: positive_sphere, delta: 1e-5, epsilon: 8, "
        "steps: {clip: 1}}"
    )
    outcome = federate(config({"name": "vfl_afe", "embedding": 8}, "federation.epochs=1", sets))
    said = protection(outcome.server, {name: p.releases for name, p in outcome.privacy.items()})
    assert said["person"]["epsilon"] > max(said["epsilon"].values()) > 0


def test_the_numbers_of_the_documentation() -> None:
    from colonnade.common.privacy.accounting.accountant import epsilon

    sigma = gaussian_sigma(8, 1e-5)
    found = [epsilon(parties, sigma, 1e-5, "row") for parties in (2, 4, 14)]
    assert [round(value) for value in found] == [12, 19, 45]
