"""Runs a scripted provider until it is interrupted, for whoever tries a harness by hand.

    python -m securebench.testing.provider --script give-up
    python -m securebench.testing.provider --script solve --family short_answer --answer 391 --port 8790

It prints its URL: the ``base_url`` of a tester configuration, with ``/v1`` after it for Codex.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from securebench.testing.provider import scripts
from securebench.testing.provider.server import ScriptedProvider, Tls
from securebench.testing.provider.steps import Cut, Fail, Garble, Hang, Say, Shell, Slow

if TYPE_CHECKING:
    from securebench.testing.provider.steps import Fault, Script

_ENDS: Final = {signal.SIGINT, signal.SIGTERM}
_FAULTS: Final[dict[str, Fault]] = {"hang": Hang(3600), "cut": Cut(400), "slow": Slow(0.2), "garble": Garble()}


def main() -> int:
    """Serve."""
    asked = _parser().parse_args()
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)  # for all threads: one of them waits for it
    tls = None if asked.certificate is None else Tls(asked.certificate, asked.key)
    with ScriptedProvider(_script(asked), tls=tls, fault=_fault(asked.fault), port=asked.port) as provider:
        sys.stdout.write(provider.url + "\n")
        sys.stdout.flush()
        signal.sigwait(_ENDS)
        for request in provider.requests:
            sys.stderr.write(f"{request.method} {request.path}\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    summary = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m securebench.testing.provider", description=summary)
    parser.add_argument("--script", choices=["solve", "give-up", "refuse", "shell"], default="solve")
    parser.add_argument("--family", default="short_answer", help="of the task to solve (default: %(default)s)")
    parser.add_argument("--answer", default="42", help="to solve it with, or the command of 'shell' (default: 42)")
    parser.add_argument("--fault", help="with each answer: hang, cut, slow, garble, or a status such as 529")
    parser.add_argument("--port", type=int, default=0, help="0 is any that is free (default)")
    parser.add_argument("--certificate", type=Path, help="PEM: serve it over TLS")
    parser.add_argument("--key", type=Path, help="PEM: the key of the certificate")
    return parser


def _script(asked: argparse.Namespace) -> Script:
    match asked.script:
        case "solve":
            return scripts.solve(asked.family, asked.answer)
        case "give-up":
            return scripts.give_up()
        case "refuse":
            return scripts.refuse()
        case _:
            return (Shell(asked.answer), Say("Done."))


def _fault(name: str | None) -> Fault | None:
    return None if name is None else _FAULTS.get(name) or Fail(int(name))


if __name__ == "__main__":
    sys.exit(main())
