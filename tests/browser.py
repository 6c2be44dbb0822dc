"""A driver for Debian's Chromium. It uses the DevTools protocol over two pipes, so it needs no port and no library."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NO_BROWSER = "SECUREBENCH_NO_BROWSER"
_SECONDS = 60.0

# Chromium reads commands from descriptor 3 and writes to descriptor 4. A pipe may already have one of these numbers, so
# both are first duplicated to numbers from 10.
_LAUNCH = """
import fcntl, os, sys
pipes = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
os.dup2(pipes[0], 3)
os.dup2(pipes[1], 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""


def chromium() -> str:
    """Return the path of Chromium. If it is missing, the test fails; if ``NO_BROWSER`` is set, the test is skipped."""
    if reason := os.environ.get(NO_BROWSER):
        pytest.skip(f"no browser: {reason}")
    found = shutil.which("chromium")
    if found is None:
        pytest.fail(f"Chromium is missing: run 'apt-get install chromium', or set {NO_BROWSER} to a reason")
    return found


@dataclass
class LoadedPage:
    """An open page. Events are added to its lists while commands are sent to the browser."""

    browser: Browser
    session: str
    target: str
    requests: list[str] = field(default_factory=list)
    """URLs that the page requested or tried to request."""
    complaints: list[str] = field(default_factory=list)
    """Log entries, console messages, violations of the content security policy, exceptions and dialogs."""
    load_seconds: float = 0.0

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression. The page's content security policy does not apply to it."""
        parameters = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        return self.browser.send("Runtime.evaluate", parameters, self)["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Wait until a JavaScript expression is true. Fails after 60 seconds."""
        end = time.monotonic() + _SECONDS
        while not self.evaluate(expression):
            assert time.monotonic() < end, f"never true: {expression}"
            time.sleep(0.1)

    def screenshot(self, path: Path) -> None:
        """Write a PNG image of the visible part of the page."""
        path.write_bytes(base64.b64decode(self.browser.send("Page.captureScreenshot", {}, self)["data"]))

    def saw(self, event: dict[str, Any]) -> None:
        """Add an event of the page to its lists, if the event is a request or a complaint."""
        parameters = event.get("params", {})
        match event["method"]:
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])
            case "Log.entryAdded":
                self.complaints.append(parameters["entry"]["text"])
            case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Page.javascriptDialogOpening":
                self.complaints.append(json.dumps(parameters)[:500])
            case "Audits.issueAdded" if parameters["issue"]["code"] == "ContentSecurityPolicyIssue":
                self.complaints.append(json.dumps(parameters["issue"])[:500])


class Browser:
    """A headless Chromium that keeps its profile in the given directory."""

    def __init__(self, profile: Path) -> None:
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        options = ["--headless", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage", "--disable-extensions"]
        options += ["--no-sandbox"] if os.geteuid() == 0 else []
        command = [chromium(), *options, "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _LAUNCH, str(to_read), str(to_write), *command],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._buffer = b""
        self._number = 0
        self._pages: dict[str, LoadedPage] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.send("Browser.close", {})
        except (OSError, EOFError):
            self._process.kill()
        self._process.wait(timeout=_SECONDS)
        os.close(self._write)
        os.close(self._read)

    @contextmanager
    def opened(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> Iterator[LoadedPage]:
        """Open ``url`` in a tab of the given size, wait until the page is painted, and close the tab at the end."""
        with ExitStack() as stack:
            context = self.send("Target.createBrowserContext", {})["browserContextId"]
            stack.callback(self.send, "Target.disposeBrowserContext", {"browserContextId": context})
            target = self.send("Target.createTarget", {"url": "about:blank", "browserContextId": context})["targetId"]
            session = self.send("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
            page = self._pages[session] = LoadedPage(self, session, target)
            stack.callback(self._pages.pop, session)
            for domain in ("Page", "Network", "Runtime", "Log", "Audits"):
                self.send(f"{domain}.enable", {}, page)
            size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
            self.send("Emulation.setDeviceMetricsOverride", size, page)
            scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
            self.send("Emulation.setEmulatedMedia", {"features": [scheme]}, page)
            start = time.monotonic()
            self.send("Page.navigate", {"url": url}, page)
            painted = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"
            page.wait_for("location.href !== 'about:blank' && document.readyState === 'complete'")
            page.evaluate(painted)
            page.load_seconds = time.monotonic() - start
            yield page

    def send(self, method: str, parameters: dict[str, Any], page: LoadedPage | None = None) -> Any:
        """Send a command and return its result. Events that arrive before the result are added to their pages."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if page is not None:
            message["sessionId"] = page.session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            received = self._receive()
            if received.get("id") == self._number:
                assert "error" not in received, received["error"]
                return received["result"]
            if "method" in received and (seen := self._pages.get(received.get("sessionId", ""))):
                seen.saw(received)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            data = os.read(self._read, 1 << 20)
            if not data:
                raise EOFError("the browser ended")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message
