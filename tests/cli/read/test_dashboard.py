"""The dashboard: addresses, admitted hosts, refreshed pages, and state kept by a browser."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest

from colonnade.cli.main import completed
from colonnade.common.errors import EnvironmentFault, InputError
from colonnade.common.observability.ports import is_loopback
from colonnade.reports import dashboard
from colonnade.reports.dashboard import PERIOD, Current, Dashboard, Site, read_address
from tests.cli.read.reports import Page, leave
from tests.cli.run.test_up import finish, start, wait_for_round
from tests.cli.run.test_up import write as write_file
from tests.support.browser import Browser
from tests.support.patience import PATIENCE


def so_far(folder: Path, lines: int) -> None:
    """The run's folder as it was after so many events."""
    whole = leave(folder.with_name("whole")) if not folder.with_name("whole").exists() else folder.with_name("whole")
    folder.mkdir(exist_ok=True)
    events = (whole / "events.jsonl").read_text().splitlines(keepends=True)
    (folder / "events.jsonl").write_text("".join(events[:lines]))
    if lines >= len(events):
        shutil.copy(whole / "summary.json", folder)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["up", "--dashboard"], ["up", "--dashboard", "127.0.0.1:0"]),
        (["up", "--dashboard", "--set", "a=1"], ["up", "--dashboard", "127.0.0.1:0", "--set", "a=1"]),
        (["up", "--dashboard", "demo.yaml"], ["up", "--dashboard", "127.0.0.1:0", "demo.yaml"]),
        (["up", "--dashboard", "8000", "demo.yaml"], ["up", "--dashboard", "8000", "demo.yaml"]),
        (["up", "--dashboard", "[::]:80"], ["up", "--dashboard", "[::]:80"]),
        (["up", "--dashboard=80"], ["up", "--dashboard=80"]),
        (["report", "run"], ["report", "run"]),
    ],
)
def test_an_option_without_an_address_has_one(words: list[str], expected: list[str]) -> None:
    assert completed(words) == expected


def test_addresses() -> None:
    read = {"8000": "127.0.0.1:8000", "localhost:1": "127.0.0.1:1", "0.0.0.0:80": "0.0.0.0:80", "[::1]:0": "[::1]:0",
            "lab.example:80": "lab.example:80"}  # fmt: skip
    assert {given: read_address(given) for given in read} == read
    for wrong in ("", "host", ":80", "host:", "host:65536", "99999", "http://host:80", "a b:80", "-1", "::1:80"):
        with pytest.raises(InputError, match="expected HOST:PORT, or a port"):
            read_address(wrong)
    assert [is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "0.0.0.0", "10.0.0.1", "lab")] == [
        True, True, True, False, False, False]  # fmt: skip


def test_a_page_is_rendered_on_request_and_not_too_often(tmp_path: Path) -> None:
    now = {"at": 0.0}
    folder = tmp_path / "run"
    current = Current(folder, lambda: now["at"])
    assert b"The run has not begun" in current.page() and b'data-again="2"' in current.page()
    so_far(folder, 8)
    assert b"The run has not begun" in current.page()
    now["at"] += PERIOD
    going = current.page().decode()
    assert "Round 2 of 6 so far" in going and 'data-again="2"' in going and "<noscript><meta http-equiv" in going
    so_far(folder, 10)
    assert current.page().decode() == going
    so_far(folder, 99)
    current.end()
    last = current.page().decode()
    assert ", 6 rounds in 9.5 s" in last and 'data-again="0"' in last and 'http-equiv="refresh' not in last
    now["at"] += 9 * PERIOD
    shutil.rmtree(folder)
    assert current.page().decode() == last


def test_an_unreadable_folder_is_reported(tmp_path: Path) -> None:
    current = Current(leave(tmp_path / "run"))
    (tmp_path / "run" / "summary.json").write_text("{")
    assert b"summary.json is torn or no summary" in current.page()
    gone = Current(tmp_path / "gone")
    gone.end()
    assert b"ended before it began" in gone.page() and b'data-again="0"' in gone.page()


def served(folder: Path, ask: Callable[[aiohttp.ClientSession], Awaitable[None]], address: str = "127.0.0.1:0") -> None:
    async def play() -> None:
        site = Site(Current(folder), address)
        where = await site.start()
        try:
            async with aiohttp.ClientSession(f"http://{where.replace('0.0.0.0', '127.0.0.1')}") as caller:
                await ask(caller)
        finally:
            await site.stop()

    asyncio.run(play())


def test_one_page_and_nothing_else(tmp_path: Path) -> None:
    async def ask(caller: aiohttp.ClientSession) -> None:
        answer = await caller.get("/")
        text = await answer.text()
        assert answer.status == 200 and "Accuracy 92.2% on test rows" in text
        said = answer.headers["Content-Security-Policy"]
        inside = next(
            attrs["content"] for _, attrs in Page(text).tags if attrs.get("http-equiv", "").startswith("Content")
        )
        assert said == f"{inside}; frame-ancestors 'none'" and said.startswith("default-src 'none'; ")
        assert "http" not in said and "*" not in said and "unsafe-inline" not in said.split("script-src")[1]
        assert answer.headers["Cache-Control"] == "no-store"
        for path in ("/events.jsonl", "/summary.json", "/parties/", "/favicon.ico", "/index.html"):
            refused = await caller.get(path)
            assert refused.status == 404 and "Content-Security-Policy" in refused.headers
        for method in ("POST", "PUT", "DELETE", "HEAD", "OPTIONS"):
            assert (await caller.request(method, "/")).status == 405

    served(leave(tmp_path / "run"), ask)


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost", 200), ("127.0.0.1:1", 200), ("[::1]:9", 200), ("LOCALHOST:80", 200), ("evil.example", 403),
     ("127.0.0.1.evil.example", 403), ("localhost@evil.example", 403), ("", 403), ("[", 403)],
)  # fmt: skip
def test_on_loopback_the_name_must_be_this_machines(tmp_path: Path, host: str, status: int) -> None:
    async def ask(caller: aiohttp.ClientSession) -> None:
        answer = await caller.get("/", headers={"Host": host})
        assert answer.status == status and ("Accuracy 92.2%" in await answer.text()) == (status == 200)

    served(leave(tmp_path / "run"), ask)


def test_elsewhere_any_name_will_do(tmp_path: Path) -> None:
    async def ask(caller: aiohttp.ClientSession) -> None:
        assert (await caller.get("/", headers={"Host": "lab.example"})).status == 200

    served(leave(tmp_path / "run"), ask, "0.0.0.0:0")


def test_a_port_in_use_gives_a_hint(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with pytest.raises(EnvironmentFault, match=f"cannot listen on 127.0.0.1:{port}") as caught:
            Dashboard(tmp_path, port)
    assert "choose another --dashboard" in caught.value.hint


def test_a_public_address_gives_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Dashboard(tmp_path, "0").close()
    assert "TLS" not in capsys.readouterr().out
    Dashboard(tmp_path, "0.0.0.0:0").close()
    assert "it has no TLS" in capsys.readouterr().out


def wait_for(browser: Browser, line: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not browser.value(line):
        assert time.monotonic() < deadline, line
        time.sleep(0.05)


@pytest.mark.browser
def test_a_browser_keeps_its_readers_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "PERIOD", 0.1)
    folder = tmp_path / "run"
    served_page = Dashboard(folder, "0")
    try:
        with Browser() as browser:
            browser.open(served_page.url, 1000, 500)
            assert browser.value("document.querySelector('#opening').textContent").startswith("The run has not begun")
            so_far(folder, 9)
            (folder / "config.yaml").write_text("\n".join(f"line{number}: 1" for number in range(99)))
            wait_for(browser, "!!document.querySelector('#configuration')")
            browser.value("document.querySelector('#quality-and-loss-over-the-run summary').click()")
            browser.value("document.querySelector('input[value=bytes]').click()")
            browser.value("document.querySelector('#configuration summary').click()")
            browser.value("document.querySelector('#configuration pre').scrollTop = 70")
            browser.value("window.scrollTo(0, document.querySelector('#traffic').offsetTop)")
            browser.value("document.querySelector('input[value=bytes]').focus({ preventScroll: true })")
            before = browser.value("document.querySelector('#traffic').getBoundingClientRect().top")
            so_far(folder, 99)
            (folder / "config.yaml").open("a").write("\nlast: 1")
            wait_for(browser, "document.querySelector('#opening').textContent.includes(', 6 rounds in 9.5 s')")
            assert browser.value("document.querySelector('#quality-and-loss-over-the-run details').open")
            assert browser.value("document.activeElement.value") == "bytes"
            assert browser.value("document.querySelector('[data-axis=bytes]').offsetHeight") > 0
            assert browser.value("document.querySelector('[data-axis=round]').offsetHeight") == 0
            assert browser.value("document.querySelector('#configuration pre').scrollTop") == 70
            assert abs(browser.value("document.querySelector('#traffic').getBoundingClientRect().top") - before) < 2
            wait_for(browser, "document.querySelector('[role=status]').textContent.startsWith('The run has ended')")
            assert not browser.value("!!document.querySelector('.live button')") and browser.console == []
    finally:
        served_page.close()


@pytest.mark.browser
def test_a_reader_can_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "PERIOD", 0.1)
    so_far(tmp_path / "run", 9)
    served_page = Dashboard(tmp_path / "run", "0")
    asked = "performance.getEntriesByType('resource').length"
    try:
        with Browser() as browser:
            browser.open(served_page.url)
            wait_for(browser, f"{asked} > 0")
            browser.value("document.querySelector('.live button').focus()")
            browser.press("Enter", 13)
            assert browser.value("document.querySelector('[role=status]').textContent") == "Paused."
            count = browser.value(f"new Promise((done) => setTimeout(() => done({asked}), 300))")
            so_far(tmp_path / "run", 99)
            assert browser.value(f"new Promise((done) => setTimeout(() => done({asked}), 500))") == count
            browser.value("document.querySelector('.live button').click()")
            wait_for(browser, "document.querySelector('#opening').textContent.includes(', 6 rounds in 9.5 s')")
    finally:
        served_page.close()


@pytest.mark.processes
def test_up_serves_its_page_and_leaves_it(tmp_path: Path) -> None:
    """Holds for a run in progress too."""
    file, out = write_file(tmp_path, {"name": "split", "embedding": 8}, parties=2, epochs=2), tmp_path / "run"
    process = start("up", file, "--out", out, "--dashboard")
    assert process.stdout is not None
    url = re.search(r"dashboard: (\S+)", process.stdout.readline())
    assert url is not None
    wait_for_round(out, 1, process)

    async def ask() -> str:
        async with aiohttp.ClientSession() as caller:
            return await (await caller.get(url[1])).text()

    assert "among 2 parties" in asyncio.run(ask())
    output = finish(process)
    assert process.returncode == 0 and f"page: {out}/report.html" in output.replace("\n", ""), output
    assert "The run has not ended" not in (out / "report.html").read_text()
    again = start("up", "--resume", out, "--set", "federation.epochs=3", "--dashboard", "0")
    output = finish(again)
    assert again.returncode == 0 and "dashboard: http://127.0.0.1:" in output, output
    rounds = json.loads((out / "summary.json").read_text())["rounds"]
    assert f", {rounds} rounds in " in (out / "report.html").read_text()
