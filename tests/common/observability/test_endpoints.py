"""A member's endpoints, which are off by default."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import grpc
import psutil
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from colonnade.cli.run.health import state
from colonnade.common.errors import ConfigError, EnvironmentFault
from colonnade.common.observability.endpoints import Endpoints
from colonnade.common.observability.exposition import Exposition
from colonnade.common.observability.health import Health
from colonnade.common.observability.metric import Metric
from colonnade.common.observability.telemetry import Event, Telemetry
from colonnade.common.parsing.file import parse
from tests.support.federation import tree
from tests.support.watched import read, samples

ANY = "127.0.0.1:0"


@dataclass(frozen=True)
class Section:
    metrics: str = ""
    health: str = ""


def section(value: object) -> str:
    made = tree({"name": "split"})
    made["server"]["metrics"] = value
    server = parse(made).server
    assert server is not None
    return server.metrics


def listening() -> set[tuple[str, int]]:
    mine = psutil.Process().net_connections("inet")
    # gRPC listens by IPv6, on the IPv4 address that it was given.
    return {(c.laddr.ip.removeprefix("::ffff:"), c.laddr.port) for c in mine if c.status == psutil.CONN_LISTEN}


def test_by_default_no_port_is_opened_and_nothing_is_logged() -> None:
    config, events, before = parse(tree({"name": "split"})), list[Event](), listening()
    assert config.server is not None
    for own in (config.server, config.parties["party1"]):
        with Endpoints("server", own) as watch:
            assert listening() == before
            watch.announce(Telemetry(None, events.append))
    assert not events


def test_a_bare_port_is_one_of_loopback_and_others_have_to_be_named() -> None:
    assert section(9400) == section("9400") == section("127.0.0.1:9400") == "127.0.0.1:9400"
    assert section(0) == "127.0.0.1:0"
    assert section("0.0.0.0:9400") == "0.0.0.0:9400" and section("[::]:9400") == "[::]:9400"
    assert section("") == ""


@pytest.mark.parametrize("wrong", [70_000, -1, "here", ":9400", "host:", 9.4])
def test_an_address_that_is_none_is_refused_by_its_key(wrong: object) -> None:
    with pytest.raises(ConfigError, match=r"server\.metrics"):
        section(wrong)


def test_no_member_sends_where_it_is_watched() -> None:
    plain, watched = tree({"name": "split"}), tree({"name": "split"})
    watched["server"]["metrics"] = watched["every_party"]["health"] = 9400
    assert parse(plain).federation.hashes() == parse(watched).federation.hashes()


@pytest.mark.parametrize("what", ["metrics", "health"])
def test_a_taken_port_is_named_with_its_key_and_the_other_is_closed_again(what: str) -> None:
    before = listening()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        asked = Section(**{"metrics": ANY, "health": ANY, what: address})
        with pytest.raises(EnvironmentFault) as refused, Endpoints("parties.bank", asked):
            pass
    assert str(refused.value) == f"cannot listen on {address}: Address already in use"
    assert refused.value.hint.endswith(f"choose another parties.bank.{what}, or COLONNADE_{what.upper()}")
    assert listening() == before


def test_one_port_cannot_be_both() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(EnvironmentFault, match="in use"), Endpoints("server", Section(address, address)):
        pass


def test_only_the_interface_that_was_named_listens() -> None:
    before, events = listening(), list[Event]()
    with Endpoints("server", Section(ANY, ANY)) as watch:
        watch.announce(Telemetry(None, events.append))
        opened = listening() - before
    (event,) = events
    assert event["kind"] == "observed"
    assert {f"{host}:{port}" for host, port in opened} == {event["metrics"], event["health"]}
    assert {host for host, _ in opened} == {"127.0.0.1"}


METRICS = [
    Metric("counter", "colonnade_things", "Things.", {("a",): 2.0, ('q"\\\n',): 3.0}, ("party",)),
    Metric("gauge", "colonnade_now", "Now.", {(): float("nan")}),
    Metric("summary", "colonnade_work_seconds", "Work.", {("x",): (4.0, 0.5)}, ("phase",)),
    Metric("info", "colonnade_build", "Build.", {("1",): 1.0}, ("version",)),
]


class Fixed:
    def __init__(self) -> None:
        self.heard = list[Event]()

    def __call__(self, event: Event) -> None:
        self.heard.append(event)

    def collect(self) -> list[Metric]:
        return METRICS


def test_collected_metrics_can_be_parsed() -> None:
    collector = Fixed()
    with Exposition(ANY, "server.metrics") as shown:
        shown.show(collector.collect)
        found = samples(read(shown.address))
    assert found["colonnade_things_total", frozenset({("party", "a")})] == 2
    assert found["colonnade_things_total", frozenset({("party", 'q"\\\n')})] == 3
    assert found["colonnade_now", frozenset()] != found["colonnade_now", frozenset()]  # not a number
    assert found["colonnade_work_seconds_count", frozenset({("phase", "x")})] == 4
    assert found["colonnade_work_seconds_sum", frozenset({("phase", "x")})] == 0.5
    assert found["colonnade_build_info", frozenset({("version", "1")})] == 1
    own = psutil.Process().memory_info().rss
    assert 0.3 * own < found["process_resident_memory_bytes", frozenset()] < 3 * own


def test_two_processes_worth_of_metrics_in_one_do_not_meet() -> None:
    with Exposition(ANY, "a") as one, Exposition(ANY, "b") as other:
        one.show(lambda: METRICS)
        other.show(lambda: METRICS[:1])
        assert "colonnade_build_info" in read(one.address) and "colonnade_build_info" not in read(other.address)


def test_a_collector_hears_of_events_where_metrics_are_asked_for() -> None:
    heard, deaf = Fixed(), Fixed()
    for collector, asked in ((heard, Section(metrics=ANY)), (deaf, Section(health=ANY))):
        with Endpoints("server", asked) as watch:
            watch.show(collector)
            Telemetry(None, watch).event("round", round=3)
    assert [event["round"] for event in heard.heard] == [3] and not deaf.heard


@pytest.fixture
def health() -> Iterator[Health]:
    with Health(ANY, "server.health") as there:
        yield there


def event(kind: str) -> Event:
    return {"kind": kind, "time": 0.0}


def test_up_is_not_ready(health: Health) -> None:
    assert (state(health.address, ""), state(health.address, "colonnade")) == ("SERVING", "NOT_SERVING")
    assert "no service 'else'" in state(health.address, "else")


def test_readiness_follows_a_party_and_a_server(health: Health) -> None:
    for kind, ready in (
        ("join", "SERVING"), ("round", "SERVING"), ("server_away", "NOT_SERVING"), ("warning", "NOT_SERVING"),
        ("join", "SERVING"), ("end", "NOT_SERVING"), ("listening", "SERVING"),
    ):  # fmt: skip
        health(event(kind))
        assert state(health.address, "colonnade") == ready, kind
        assert state(health.address, "") == "SERVING"


def test_health_watchers_see_every_change_and_the_end() -> None:
    names = HealthCheckResponse.ServingStatus.Name
    with Health(ANY, "server.health") as there, grpc.insecure_channel(there.address) as channel:
        ready = HealthStub(channel).Watch(HealthCheckRequest(service="colonnade"), timeout=20)
        live = HealthStub(channel).Watch(HealthCheckRequest(), timeout=20)
        assert [names(next(stream).status) for stream in (ready, live)] == ["NOT_SERVING", "SERVING"]
        there(event("join"))
        assert names(next(ready).status) == "SERVING"
        leaving = threading.Thread(target=there.__exit__)
        leaving.start()
        assert [names(next(stream).status) for stream in (ready, live)] == ["NOT_SERVING", "NOT_SERVING"]
        leaving.join()
        assert state(there.address, "").startswith("no answer")


def test_both_endpoints_answer_during_a_computation(health: Health) -> None:
    """A protocol side that computes in torch blocks its event loop, and must not count as dead."""

    async def main(done: threading.Event) -> bool:
        return done.wait(20)  # blocks the loop on purpose: only another thread can end it

    done, found = threading.Event(), list[str]()

    def look() -> None:
        time.sleep(0.05)
        found.append(state(health.address, ""))
        with Exposition(ANY, "server.metrics") as shown:
            found.append(read(shown.address))
        done.set()

    looking = threading.Thread(target=look)
    looking.start()
    assert asyncio.run(main(done))
    looking.join()
    assert found[0] == "SERVING" and "process_cpu_seconds_total" in found[1]
