"""The command line of the scripted provider: ``python -m securebench.testing.provider``."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from provider_client import ask, commanded, request_of, text_of

if TYPE_CHECKING:
    from provider_client import Answer


def answered(*arguments: str, results: list[str], end: signal.Signals = signal.SIGINT) -> Answer:
    """Start the program, and return one answer. After the signal ``end``, it must list the request and exit with 0."""
    command = [sys.executable, "-m", "securebench.testing.provider", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        url = started.stdout.readline().strip()
        answer = ask(url, "openai", request_of("openai", results=results))
        started.send_signal(end)
        assert started.wait(10) == 0
        assert started.stderr is not None
        assert started.stderr.read() == "POST /v1/responses\n"
    return answer


def test_it_prints_its_url_and_serves() -> None:
    """The program prints its URL, and serves the script that its options select."""
    answer = answered("--family", "code_completion", "--answer", "x = 1", results=["the task"])
    assert "x = 1" in str(commanded("openai", answer))
    assert "candidate.py" in str(commanded("openai", answer))


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_when_it_is_told_to(end: signal.Signals) -> None:
    """After SIGINT or SIGTERM, the program lists the requests and exits with code 0."""
    assert answered("--script", "refuse", results=[], end=end).status == 200


@pytest.mark.parametrize(("script", "words"), [("give-up", "could not"), ("shell", "Done.")])
def test_it_knows_scripts(script: str, words: str) -> None:
    """``--script`` selects a script by its name."""
    assert words in text_of("openai", answered("--script", script, results=["the task"]))


def test_it_knows_faults() -> None:
    """``--fault`` accepts an HTTP status or the name of a fault."""
    assert answered("--fault", "529", results=[]).status == 529
    assert b'{"type": "message", "content": [' in answered("--fault", "garble", results=[]).body


@pytest.mark.parametrize("fault", ["xyz", "99", "-1", "1000"])
def test_an_unknown_fault_is_refused_with_the_valid_ones(fault: str) -> None:
    """An unknown ``--fault`` is a usage error whose message lists the valid faults."""
    command = [sys.executable, "-m", "securebench.testing.provider", f"--fault={fault}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    expected = "is not a fault: expected hang, cut, slow, garble, or an HTTP status from 400 to 599"
    assert done.stderr.splitlines()[-1].endswith(expected)


def test_an_unknown_family_is_refused_with_the_valid_ones() -> None:
    """An unknown ``--family`` is a usage error whose message lists the valid families."""
    command = [sys.executable, "-m", "securebench.testing.provider", "--family", "xyz"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--family: invalid choice: 'xyz'" in done.stderr.splitlines()[-1]
    assert "'repo_patch'" in done.stderr.splitlines()[-1]
