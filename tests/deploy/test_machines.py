"""Organisations with machines of their own, as in deploy/machines.md: addresses, routers, NAT, proxy, firewall.

bank --- proxy ---.
shop (IPv6) ------ router --- server
clinic --- nat ---'
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.network import ROOT, Network, available, await_events, colonnade, events, finish, stop
from tests.support import warm
from tests.support.patience import PATIENCE

WHY_NOT = available()

pytestmark = [
    pytest.mark.processes,
    pytest.mark.netns,
    pytest.mark.skipif(bool(WHY_NOT), reason=f"no network namespaces: {WHY_NOT}"),
]

PAGE = (ROOT / "deploy" / "machines.md").read_text()
PARTIES = ("bank", "shop", "clinic")
MEMBERS = ("server", *PARTIES)
HOSTS = "203.0.113.7 labels.example.org another-name.example.net\n"
PROXY = "http://10.1.0.3:3128"
ROWS = 120
ENDLESS = {"epochs": 0, "rounds": 50_000, "checkpoint": {"rounds": 5}, "stop": "none"}


def blocks(heading: str, kind: str) -> list[str]:
    """The page's fenced blocks of a kind below a heading."""
    section = re.split(r"^## ", PAGE.partition(f"## {heading}\n")[2], flags=re.MULTILINE)[0]
    found = re.findall(rf"^```{kind}\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    assert found, f"deploy/machines.md has no {kind} below {heading!r}"
    return found


def follow(heading: str, folder: Path) -> list[str]:
    """Runs the commands below a heading in a folder, and returns the output of each."""
    said = []
    for line in "".join(blocks(heading, "sh")).splitlines():
        words = shlex.split(line)
        assert words[0] == "colonnade", line
        said.append(warm.run(colonnade(*words[1:]), cwd=folder, env=ENV, stdout=subprocess.PIPE).stdout)
    return said


ENV = {"PYTHONPATH": str(ROOT), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}


class World:
    """The network, and every member's folder in the state in which deploy/machines.md leaves it."""

    def __init__(self, folder: Path, network: Network) -> None:
        self.folder, self.network = folder, network
        self._wire()
        self.pins = self._identify()

    def __getitem__(self, name: str) -> Path:
        return self.folder / name

    def write(self, *parties: str, **federation: Any) -> None:
        """The files of the server and these parties: the page's, with these keys of the agreed section otherwise."""
        agreed = yaml.safe_load(blocks("4. The roster", "yaml")[0])["federation"]
        agreed |= {"server": self.pins["server"], "parties": {name: self.pins[name] for name in parties}}
        agreed |= {"protocol": {"name": "split", "embedding": 4}, "batch": 32, "timeouts": {"away": 90}, **federation}
        server, party = map(yaml.safe_load, blocks("5. One file each", "yaml"))
        for name in parties:
            own = dict(party["parties"]["bank"], data={"source": "csv", "path": f"{name}.csv"})
            own |= {"connect": CONNECT.get(name, own["connect"]), "chaos": {"delay": "20ms"}}
            self._put(name, {"federation": agreed, "parties": {name: own}})
        self._put("server", {"federation": agreed, **server})

    def start(self, name: str, *more: object, out: str = "run", how: str = "--out") -> subprocess.Popen[str]:
        """Starts a member on its machine, in its own folder."""
        kind = "server" if name == "server" else "client"
        environ = {"https_proxy": PROXY} if name == "bank" else {}
        argv = colonnade(kind, f"{name}.yaml", how, out, *more)
        return self.network.start(name, *argv, cwd=self[name], **environ)

    def _put(self, name: str, tree: dict[str, Any]) -> None:
        (self[name] / f"{name}.yaml").write_text(yaml.safe_dump(tree, sort_keys=False))

    def _wire(self) -> None:
        for name in ("router", "nat"):
            self.network.machine(name, forwards=True)
        for name in (*MEMBERS, "proxy"):
            self.network.machine(name)
        cable = self.network.cable
        cable("server", "203.0.113.7/24 2001:db8:1::7/64", "router", "203.0.113.1/24 2001:db8:1::1/64")
        cable("shop", "2001:db8:2::2/64", "router", "2001:db8:2::1/64")
        cable("nat", "192.0.2.9/24", "router", "192.0.2.1/24")
        cable("clinic", "192.168.1.2/24", "nat", "192.168.1.1/24")
        self.network.run("nat", "iptables", "-t", "nat", "-A", "POSTROUTING", "-o", "to-router", "-j", "MASQUERADE")
        cable("proxy", "198.51.100.3/24", "router", "198.51.100.1/24")
        cable("bank", "10.1.0.2/24", "proxy", "10.1.0.3/24", routed=False)

    def _identify(self) -> dict[str, str]:
        authority = self["authority"]
        for name in (*MEMBERS, "authority"):
            self[name].mkdir()
        follow("1. The authority", authority)
        at_server, at_party = blocks("2. A key and a request each", "sh")
        for name in MEMBERS:
            words = shlex.split(at_server if name == "server" else at_party)
            argv = colonnade(*(name if word == "bank" else word for word in words[1:]))
            assert self.network.run(name, *argv, cwd=self[name]).returncode == 0
            shutil.copy(self[name] / "keys" / "request.csr", authority / f"{name}.csr")
        follow("3. Signing", authority)
        for name in MEMBERS:
            shutil.copy(authority / f"{name}.pem", self[name] / "keys" / "cert.pem")
            shutil.copy(authority / "ca" / "cert.pem", self[name] / "keys" / "ca.pem")
        (authority / "federation.yaml").write_text(blocks("4. The roster", "yaml")[0])
        follow("4. The roster", authority)
        agreed = yaml.safe_load((authority / "federation.yaml").read_text())["federation"]
        self._tables()
        pins = {"server": agreed["server"], **agreed["parties"]}
        assert tuple(pins) == MEMBERS
        return pins

    def _tables(self) -> None:
        for name in PARTIES:
            lines = [f"{row % 7},{(row * row) % 11},{row % 3}" for row in range(ROWS)]
            (self[name] / f"{name}.csv").write_text("\n".join([f"{name}1,{name}2,{name}3", *lines, ""]))
        labels = [str(row % 7 > 3) for row in range(ROWS)]
        (self["server"] / "outcome.csv").write_text("\n".join(["default", *labels, ""]))
        (self["server"] / "revoked.json").write_text('{"revoked": []}')


CONNECT = {"shop": "[2001:db8:1::7]:7400", "clinic": "another-name.example.net:7400"}  # a name not in the certificate


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with Network(HOSTS) as network:
        yield World(tmp_path_factory.mktemp("machines"), network)


@pytest.fixture
def proxy(world: World) -> Iterator[Path]:
    """The proxy runs; the file has a line for each CONNECT, with its response."""
    log = world.folder / "proxy.log"
    script = ROOT / "tests" / "deploy" / "connect_proxy.py"
    process = world.network.start("proxy", "sh", "-c", f"exec {sys.executable} -S {script} 10.1.0.3 3128 > {log}")
    yield log
    process.kill()


def until(happens: Any, *alive: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happens():
        assert time.monotonic() < deadline and all(process.poll() is None for process in alive)
        time.sleep(0.05)


def test_a_run_goes_to_its_end_whichever_way_each_party_comes(world: World, proxy: Path) -> None:
    """Parties start through a proxy and behind a NAT, by a name in no certificate, before the server; by IPv6 after."""
    reaches, run = world.network.reaches, world["server"] / "paths"
    world.write(*PARTIES, epochs=3)
    members = {name: world.start(name, out="paths") for name in ("bank", "clinic")}
    until(lambda: proxy.exists() and "502" in proxy.read_text(), *members.values())  # the server is not there yet
    members["server"] = world.start("server", out="paths")
    await_events(run, "join", 2, *members.values())
    peers = world.network.run("server", "ss", "-Htn", "state", "established").stdout  # both wait for the shop
    assert "198.51.100.3" in peers and "192.0.2.9" in peers  # the proxy's address and the NAT's, and not
    assert "10.1.0.2" not in peers and "192.168.1.2" not in peers  # the bank's and the clinic's
    assert not reaches("bank", "203.0.113.7", 7400) and reaches("proxy", "203.0.113.7", 7400)
    assert reaches("clinic", "203.0.113.7", 7400) and not _dials_in(world, "clinic", "192.168.1.2")
    members["shop"] = world.start("shop", out="paths")
    ended = {name: finish(process) for name, process in members.items()}
    assert [code for code, _ in ended.values()] == [0] * 4, ended
    assert json.loads((run / "summary.json").read_text())["status"] == "completed"
    assert proxy.read_text().count("CONNECT labels.example.org:7400 200") >= 2  # its certificate, then the stream


def _dials_in(world: World, name: str, address: str) -> bool:
    """True if the server reaches an open port at a party; its neighbour does, as a control."""
    listen = f"import socket, time; s = socket.create_server(({address!r}, 9000)); print(1, flush=True); time.sleep(99)"
    process = world.network.start(name, sys.executable, "-S", "-c", listen)
    assert process.stdout is not None and process.stdout.readline() == "1\n"
    assert world.network.reaches("nat", address, 9000)
    found = world.network.reaches("server", address, 9000) or world.network.reaches("server", "192.0.2.9", 9000)
    process.kill()
    return found


def test_a_certificate_is_renewed_as_the_page_says(world: World, proxy: Path) -> None:
    """The run goes on with the new one; the old one is refused, being pinned no more, and then being revoked."""
    members, run = ("server", "bank", "shop"), world["server"] / "run"
    world.write("bank", "shop", **ENDLESS)
    server, *parties = (world.start(name) for name in members)
    await_events(run, "checkpoint", 2, server, *parties)
    for process in (server, *parties):
        assert stop(process)[0] == 130
    before = "--set", f"federation.parties.bank={world.pins['bank']}"  # in the bank's own file
    old, new = renew(world, "bank"), world["bank"] / "keys" / "cert.pem"
    kept = new.read_bytes()
    shutil.copy(old, new)
    world.write("bank", "shop", **ENDLESS)

    server, bank, shop = (world.start(name, how="--resume") for name in members)
    code, said = finish(bank)
    assert code == 2 and "cert.pem is the certificate" in said and "and the roster pins" in said
    code, said = finish(world.start("bank", *before, how="--resume"))
    assert code == 3 and "'bank' showed the certificate" in said and "and the roster pins" in said
    revoke(world, old)
    code, said = finish(world.start("bank", *before, how="--resume"))
    assert code == 3 and "of 'bank' is revoked: stolen laptop" in said and said.count("error:") == 1
    new.write_bytes(kept)
    bank = world.start("bank", how="--resume")
    (resume,) = await_events(run, "resume", 1, server, bank, shop)
    assert resume["round"] >= 10
    rounds = len(events(run, "round"))
    await_events(run, "round", rounds + 3, server, bank, shop)

    revoke(world, world["authority"] / "shop.pem")
    for process in (shop, server, bank):
        code, said = finish(process)
        assert code == 3 and "its certificate is revoked: stolen laptop" in said, said


def revoke(world: World, certificate: Path) -> None:
    """Adds a certificate to the server's list as the page does it with the bank's."""
    (line,) = "".join(blocks("Revoking a certificate", "sh")).splitlines()
    shutil.copy(certificate, world["server"] / "bank.pem")
    ended = world.network.run("server", *colonnade(*shlex.split(line)[1:]), cwd=world["server"])
    assert ended.returncode == 0, ended.stdout


def renew(world: World, name: str) -> Path:
    """Steps 1 to 3 for a party; its old certificate stays beside the new one. The roster pins the new one."""
    keys, authority = world[name] / "keys", world["authority"]
    assert world.network.run(name, *colonnade("certs", "renew", "keys/"), cwd=world[name]).returncode == 0
    shutil.copy(keys / "request.csr", authority / f"{name}.csr")
    signing = colonnade("certs", "sign", f"{name}.csr", "--ca", "ca/", "--out", f"{name}.pem", "--force")
    assert world.network.run("server", *signing, cwd=authority).returncode == 0
    kept = (keys / "cert.pem").rename(keys / "old.pem")
    shutil.copy(authority / f"{name}.pem", keys / "cert.pem")
    shown = world.network.run(name, *colonnade("certs", "show", "keys/cert.pem"), cwd=world[name]).stdout
    before, world.pins[name] = world.pins[name], re.findall(r"sha256:[0-9a-f]{64}", shown)[0]
    assert before != world.pins[name]
    return kept


def test_a_firewall_that_drops_everything_is_noticed_and_the_run_goes_on_when_it_is_gone(world: World) -> None:
    world.write("clinic", **ENDLESS)
    run = world["server"] / "dropped"
    server, clinic = world.start("server", out="dropped"), world.start("clinic", out="dropped")
    await_events(run, "checkpoint", 1, server, clinic)
    firewall = ("iptables", "FORWARD", "-p", "tcp", "--dport", "7400", "-j", "DROP")
    world.network.run("router", firewall[0], "-I", *firewall[1:])
    world.write("clinic", timeouts={"away": 1})
    code, said = finish(world.start("clinic", out="never"))
    assert code == 4
    assert "the server at another-name.example.net:7400 did not come within 1 s: no answer from" in said
    assert "timed out" in said
    await_events(run, "leave", 1, server, clinic)
    world.network.run("router", firewall[0], "-D", *firewall[1:])
    await_events(run, "resume", 1, server, clinic)
    rounds = len(events(run, "round"))
    await_events(run, "round", rounds + 3, server, clinic)
    for process in (server, clinic):  # the party alone would wait for its server
        stop(process)
