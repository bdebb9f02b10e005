"""Headless Chromium for tests of pages, driven over a pipe (Chrome DevTools Protocol, --remote-debugging-pipe)."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions"),
    "--remote-debugging-pipe",
)
DEADLINE_S = 60.0


class Browser:
    """A running browser. It speaks on its descriptor 4 and listens on 3; messages of JSON end with a zero byte."""

    def __init__(self, profile: Path) -> None:
        if shutil.which("chromium") is None:
            pytest.skip("needs chromium: apt-get install chromium")
        theirs_in, self._to = os.pipe()
        self._from, theirs_out = os.pipe()
        theirs = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (theirs_in, theirs_out)]  # not 3 or 4 themselves
        words = shlex.join(["chromium", *FLAGS, f"--user-data-dir={profile}"])
        self._process = subprocess.Popen(
            ["bash", "-c", f"exec {words} 3<&{theirs[0]} 4>&{theirs[1]}"],
            pass_fds=theirs,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for fd in (theirs_in, theirs_out, *theirs):
            os.close(fd)
        self._rest, self._number = b"", 0
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """What a command returns. Events that come before are put into `events`."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (heard := self._hear()).get("id") != self._number:
            self.events.append(heard)
        assert "error" not in heard, (method, heard["error"])
        result: dict[str, Any] = heard["result"]
        return result

    def wait(self, method: str) -> None:
        """Until an event of that kind is there."""
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self._hear())

    def _hear(self) -> dict[str, Any]:
        deadline = time.monotonic() + DEADLINE_S
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._from], [], [], max(deadline - time.monotonic(), 0))
            assert ready, "the browser says nothing"
            more = os.read(self._from, 1 << 20)
            assert more, "the browser has ended"
            self._rest += more
        text, _, self._rest = self._rest.partition(b"\0")
        heard: dict[str, Any] = json.loads(text)
        return heard

    def close(self) -> None:
        with contextlib.suppress(AssertionError, OSError):
            self.call("Browser.close")
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(60)
        os.close(self._to)
        os.close(self._from)


class Tab:
    """A page, a file or an address, that was loaded at a width, light or dark. `requests`, `errors`: what it asked for,
    what went wrong."""

    def __init__(self, browser: Browser, page: Path | str, width: int, dark: bool = False) -> None:
        self._browser, self.width = browser, width
        self._target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        attached = browser.call("Target.attachToTarget", targetId=self._target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)
        browser.events.clear()
        self.call("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        browser.wait("Page.loadEventFired")
        # What a ResizeObserver does has been done when a second frame begins.
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **params)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression of JavaScript; of a promise, when it is kept."""
        got = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in got, got["exceptionDetails"]
        return got["result"].get("value")

    def until(self, expression: str) -> None:
        """Until an expression of JavaScript is true."""
        deadline = time.monotonic() + DEADLINE_S
        while not self.evaluate(expression):
            assert time.monotonic() < deadline, f"{expression} is not so after {DEADLINE_S:.0f} s: {self.errors}"
            time.sleep(0.1)

    def key(self, key: str) -> None:
        """A key is pressed where the focus is."""
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def mouse(self, *steps: tuple[str, float, float]) -> None:
        """Steps are "mousePressed", "mouseMoved", "mouseReleased" at a place of the window."""
        for kind, x, y in steps:
            held = kind != "mouseMoved"
            self.call(
                "Input.dispatchMouseEvent",
                type=kind,
                x=x,
                y=y,
                button="left" if held else "none",
                buttons=1 if kind != "mouseReleased" else 0,
                clickCount=int(held),
            )

    def screenshot(self) -> bytes:
        """The whole page, as a PNG."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(shot["data"])

    @property
    def requests(self) -> list[str]:
        sent = [e for e in self._browser.events if e.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    @property
    def errors(self) -> list[str]:
        """What the console has that is no mere information: errors, warnings, exceptions, what was blocked."""
        out = []
        for event in self._browser.events:
            told = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                out.append(json.dumps(told["exceptionDetails"]))
            elif event.get("method") == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
                out.append(told["entry"]["text"])
            elif event.get("method") == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
                out.append(json.dumps(told["args"]))
        return out

    def reload(self) -> None:
        """Load it again; what was heard before is forgotten."""
        self._browser.events.clear()
        self.call("Page.reload")
        self._browser.wait("Page.loadEventFired")

    def close(self) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)


@contextlib.contextmanager
def opened(browser: Browser, page: Path | str, width: int, dark: bool = False) -> Iterator[Tab]:
    """A tab for a while."""
    tab = Tab(browser, page, width, dark)
    try:
        yield tab
    finally:
        tab.close()
