"""The server of ``securebench view``: who has access, which requests it accepts, and what it returns."""

from __future__ import annotations

import asyncio
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

import synthetic_run
from reports.hostile_records import MARK, write_hostile_run
from securebench.errors import ConfigError
from securebench.report.server import application, serve
from securebench.results.records.record import VerificationStatus
from securebench.results.run_directory.files import JOURNAL
from securebench.results.suite import RecordedSuite, write_suite

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.types import ASGIApp

TOKEN = "a-secret"
COOKIE = ("cookie", f"securebench-8000={TOKEN}")
HOST = ("host", "127.0.0.1:8000")


@dataclass(frozen=True)
class Answer:
    """A response."""

    status: int
    headers: dict[str, str]
    text: str


def ask(app: ASGIApp, path: str = "/", *headers: tuple[str, str], method: str = "GET") -> Answer:
    """Send a request to the application, without a network."""
    sent: list[dict[str, Any]] = []
    address, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": address,
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers],
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(dict(message))

    async def call() -> None:
        await app(scope, receive, send)

    asyncio.run(call())
    body = b"".join(message.get("body", b"") for message in sent[1:])
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return Answer(sent[0]["status"], found, body.decode())


@pytest.fixture
def app(tmp_path: Path) -> ASGIApp:
    """Return the application that serves one run with three tasks."""
    return application([synthetic_run.write_run(tmp_path / "run", 3)], TOKEN, 8000)


def test_a_suite_stands_for_its_runs(tmp_path: Path) -> None:
    """The existing runs of a suite are shown on one page, and each of their tasks has a page."""
    for name, status in (("one", VerificationStatus.PASSED), ("two", VerificationStatus.FAILED)):
        synthetic_run.write_run(tmp_path / "pack" / name, [synthetic_run.record(0, status)])
    write_suite(tmp_path, RecordedSuite("s", {"pack/one": {}, "pack/two": {}, "pack/later": {}}))
    app = application([tmp_path], TOKEN, 8000)
    assert "2 runs" in ask(app, "/", HOST, COOKIE).text
    assert [ask(app, f"/run/{number}/task/0", HOST, COOKIE).status for number in (1, 2, 3)] == [200, 200, 404]
    assert "expected another answer" in ask(app, "/run/2/task/0", HOST, COOKIE).text


def test_the_cookie_opens_the_pages(app: ASGIApp) -> None:
    """With the cookie, the overview and the pages of tasks that it links to can be read."""
    page = ask(app, "/", HOST, COOKIE)
    assert page.status == 200
    assert 'href="/run/1/task/2"' in page.text
    task = ask(app, "/run/1/task/2", HOST, COOKIE)
    assert task.status == 200
    assert "What is 2 times nothing?" in task.text


def test_the_address_with_the_secret_sets_the_cookie(app: ASGIApp) -> None:
    """A request with the secret sets a cookie that scripts and other sites cannot use. The page opens ``/``."""
    answer = ask(app, f"/?token={TOKEN}", HOST)
    assert answer.status == 200
    assert answer.headers["set-cookie"] == f"securebench-8000={TOKEN}; HttpOnly; SameSite=Strict; Path=/"
    assert 'content="0;url=/"' in answer.text
    assert "made-up" not in answer.text


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/", [HOST]),
        ("/run/1/task/0", [HOST]),
        ("/?token=wrong", [HOST]),
        ("/?token=", [HOST]),
        (f"/?token={TOKEN}&token={TOKEN}", [HOST]),
        (f"/run/1/task/0?token={TOKEN}", [HOST]),
        ("/", [HOST, ("cookie", "securebench-8000=wrong")]),
        ("/", [HOST, ("cookie", f"securebench-9000={TOKEN}")]),
        ("/", [HOST, ("cookie", "securebench-8000=\xe9")]),
        ("/", [HOST, ("cookie", "a[=;;\x01")]),
    ],
)
def test_without_the_secret_nothing_is_shown(app: ASGIApp, path: str, headers: list[tuple[str, str]]) -> None:
    """Without a valid cookie or secret address, a request is refused: other users of the machine must learn nothing."""
    answer = ask(app, path, *headers)
    assert answer.status == 403
    assert "made-up" not in answer.text
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "hosts",
    [[], ["attacker.example"], ["attacker.example:8000"], ["127.0.0.1.attacker.example:8000"], ["127.0.0.1:8000"] * 2],
)
def test_another_host_is_refused(app: ASGIApp, hosts: list[str]) -> None:
    """Even with the secret, a request must have exactly one Host header, and it must name this machine.

    This stops sites whose name resolves to 127.0.0.1 (DNS rebinding).
    """
    headers = [("host", host) for host in hosts]
    assert ask(app, "/", *headers, COOKIE).status == 403
    assert "set-cookie" not in ask(app, f"/?token={TOKEN}", *headers).headers


def test_a_forwarded_port_works(app: ASGIApp) -> None:
    """The port in the Host header may differ from the server's port, as it does with ``ssh -L``."""
    assert ask(app, "/", ("host", "localhost:9999"), COOKIE).status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"])
def test_nothing_can_be_changed(app: ASGIApp, method: str) -> None:
    """All methods other than GET and HEAD are refused."""
    answer = ask(app, "/", HOST, COOKIE, method=method)
    assert answer.status == 405
    assert answer.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize("path", ["/run/0/task/0", "/run/2/task/0", "/run/1/task/99", "/run/1/task/-1", "/etc/passwd"])
def test_a_page_that_is_not_there_is_not_found(app: ASGIApp, path: str) -> None:
    """An address with an unknown run or task, or with the path of a file, returns 404."""
    assert ask(app, path, HOST, COOKIE).status == 404


@pytest.mark.parametrize("path", ["/", "/run/1/task/0", "/nowhere", f"/?token={TOKEN}"])
def test_every_response_has_the_security_headers(app: ASGIApp, path: str) -> None:
    """Headers forbid external content, framing, content-type guessing, caching, referrers and use by other origins."""
    headers = ask(app, path, HOST, COOKIE).headers
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["content-security-policy"].endswith("frame-ancestors 'none'")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert headers["cross-origin-resource-policy"] == "same-origin"


def test_a_page_that_did_not_change_is_not_sent_again(app: ASGIApp) -> None:
    """A request with the current ETag returns 304, because an open page asks for changes every few seconds."""
    tag = ask(app, "/", HOST, COOKIE).headers["etag"]
    assert ask(app, "/", HOST, COOKIE, ("if-none-match", tag)).status == 304


def test_a_run_in_progress_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page shows a newly appended record, and ignores a line that is still being written."""
    monkeypatch.setattr("securebench.report.live_pages._REST", 0)
    directory = synthetic_run.write_run(tmp_path / "run", 2, synthetic_run.header(4))
    app = application([directory], TOKEN, 8000)
    before = ask(app, "/", HOST, COOKIE)
    assert "2 of 4 not run" in before.text
    with synthetic_run.SyntheticJournal(directory) as journal:
        journal.append(synthetic_run.record(2, VerificationStatus.FAILED))
    with (directory / JOURNAL).open("ab") as file:
        file.write(b'{"record_version": 4, "seq')
    after = ask(app, "/", HOST, COOKIE, ("if-none-match", before.headers["etag"]))
    assert after.status == 200
    assert "1 of 4 not run" in after.text


def test_a_run_that_is_damaged_meanwhile_is_said_so(tmp_path: Path) -> None:
    """If a run is damaged while it is served, the page shows the error and nothing of the damaged line."""
    directory = synthetic_run.write_run(tmp_path / "run", 2)
    app = application([directory], TOKEN, 8000)
    (directory / JOURNAL).write_bytes(b"<b>\n")
    answer = ask(app, "/", HOST, COOKIE)
    assert answer.status == 500
    assert "the records are damaged" in answer.text
    assert "<b>" not in answer.text


def test_hostile_records_stay_text_on_every_page(tmp_path: Path) -> None:
    """On the overview and the pages of tasks, no text of a record is inside a tag or an attribute."""
    app = application([write_hostile_run(tmp_path / "run")], TOKEN, 8000)
    for path in ("/", *(f"/run/1/task/{number}" for number in range(17))):
        page = ask(app, path, HOST, COOKIE)
        assert page.status == 200
        assert MARK in page.text
        without_ours = re.sub(r"<(script|style)>.*?</\1>", "", page.text, flags=re.DOTALL)
        assert not [tag for tag in re.findall(r"<[^>]*>", without_ours) if MARK in tag or "alert" in tag]
        assert not [char for char in page.text if not (char.isprintable() or char in "\n\t")]


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    """If the port is taken, the error names it."""
    directory = synthetic_run.write_run(tmp_path / "run", 1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}") as caught:
            serve([directory], port=port, browser=False, notify=print)
    assert caught.value.code == "view-port-taken"


def test_the_command_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    """``securebench view`` prints a working address on 127.0.0.1, and Ctrl-C ends it without an error."""
    directory = synthetic_run.write_run(tmp_path / "run", 2)
    command = [sys.executable, "-m", "securebench", "view", str(directory), "--no-browser"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        found = re.fullmatch(r"Open http://127\.0\.0\.1:(\d+)(/\?token=[\w-]{32})\n", process.stdout.readline())
        assert found is not None
        connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=30)
        connection.request("GET", found[2])
        answer = connection.getresponse()
        answer.read()
        cookie = str(answer.headers["Set-Cookie"]).partition(";")[0]
        connection.request("GET", "/", headers={"Cookie": cookie})
        assert "made-up/task-00001" in connection.getresponse().read().decode()
        connection.close()
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=30)
    assert process.returncode == 0
    assert output == ""
    assert errors == "Ctrl-C ends the server.\nstopped\n"
