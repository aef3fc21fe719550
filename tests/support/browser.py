"""A headless Chromium, driven over its debugging pipe: nothing but the standard library."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium")
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run",
    "--disable-dev-shm-usage", "--disable-extensions", "--disable-sync", "--remote-debugging-pipe",
)  # fmt: skip
_MOVE = """
import os, sys
os.dup2(int(sys.argv[1]), 3), os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """One page of a browser of its own, which is closed at the end of the `with`; without Chromium the test is skipped.

    Attributes:
        console: the page's output there, with errors and warnings of the browser.
    """

    def __init__(self) -> None:
        if CHROMIUM is None:  # in CI, which installs it, that is a failure
            (pytest.fail if os.environ.get("CI") else pytest.skip)("there is no chromium on this machine")
        self.console: list[str] = []
        self._number, self._session, self._rest = 0, "", b""
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        self._in, self._out = ours_in, ours_out
        pipes = [str(theirs_in), str(theirs_out)]  # the browser reads from 3 and writes to 4
        argv = [sys.executable, "-c", _MOVE, *pipes, CHROMIUM, *_FLAGS, f"--user-data-dir={self._profile.name}"]
        self._process = subprocess.Popen(
            argv, pass_fds=(theirs_in, theirs_out), start_new_session=True, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)

    def __enter__(self) -> Browser:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._out)
        with contextlib.suppress(ProcessLookupError):  # it and all its helpers, which are a group of their own
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._in)
        self._profile.cleanup()

    def open(
        self,
        page: Path | str,
        width: int = 1000,
        height: int = 900,
        *,
        dark: bool = False,
        script: bool = True,
        paper: bool = False,
    ) -> None:
        """Opens a file or an address in a window of this size, and waits until it is there; or as it is printed."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media="print" if paper else "", features=[scheme])
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Page.navigate", url=page.as_uri() if isinstance(page, Path) else page)
        self._wait_for("Page.loadEventFired")

    def value(self, expression: str) -> Any:
        """Value of a line of JavaScript in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def picture(self) -> bytes:
        """What the window shows, as PNG."""
        return b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def move(self, x: float, y: float) -> None:
        """The pointer goes there, in pixels of the window."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key: str, code: int) -> None:
        """A key goes down and up again."""
        text = {"text": "\r"} if key == "Enter" else {}  # without which nothing is activated
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def call(self, method: str, **given: Any) -> dict[str, Any]:
        """Sends the browser a command, and waits for its response."""
        self._number += 1
        asked = {"id": self._number, "method": method, "params": given}
        asked |= {"sessionId": self._session} if self._session else {}
        os.write(self._out, json.dumps(asked).encode() + b"\0")
        while True:
            reply = self._hear()
            if reply.get("id") == self._number:
                assert "error" not in reply, reply
                return dict(reply["result"])

    def _wait_for(self, event: str) -> None:
        while self._hear().get("method") != event:
            pass

    def _hear(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            piece = os.read(self._in, 1 << 16)
            assert piece, "the browser has ended"
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\0")
        reply: dict[str, Any] = json.loads(line)
        if reply.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.console.append(json.dumps(reply["params"]))
        return reply
