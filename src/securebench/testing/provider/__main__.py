"""Run a scripted provider until it is interrupted, to try a harness by hand.

    python -m securebench.testing.provider --script give-up
    python -m securebench.testing.provider --script solve --family short_answer --answer 391 --port 8790

It prints its URL, for the ``base_url`` of a tester configuration. Append ``/v1`` for Codex and for Chat
Completions, and ``/v1beta`` for Gemini.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from securebench.families.registry import FAMILIES
from securebench.testing.provider import scripts
from securebench.testing.provider.server import ScriptedProvider, Tls
from securebench.testing.provider.steps import Cut, Fail, Garble, Hang, Say, Shell, Slow

if TYPE_CHECKING:
    from securebench.testing.provider.steps import Fault, Script

_ENDS: Final = {signal.SIGINT, signal.SIGTERM}
_FAULTS: Final[dict[str, Fault]] = {"hang": Hang(3600), "cut": Cut(400), "slow": Slow(0.2), "garble": Garble()}
_FAULT_NAMES: Final = f"{', '.join(_FAULTS)}, or an HTTP status from 400 to 599"
_STATUSES: Final = range(400, 600)


def main() -> int:
    """Run the provider until SIGINT or SIGTERM. Then write the method and path of each recorded request to stderr."""
    arguments = _parser().parse_args()
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)  # in all threads; the main thread waits for the signals
    tls = None if arguments.certificate is None else Tls(arguments.certificate, arguments.key)
    texts = (lambda _conversation: Say(arguments.answer)) if arguments.script == "solve" else None
    with ScriptedProvider(
        _script(arguments), texts=texts, tls=tls, fault=arguments.fault, port=arguments.port
    ) as provider:
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
    parser.add_argument(
        "--family",
        choices=list(FAMILIES),
        default="short_answer",
        metavar="FAMILY",
        help="the task family to solve (default: %(default)s)",
    )
    parser.add_argument("--answer", default="42", help="the answer of 'solve', or the command of 'shell' (default: 42)")
    parser.add_argument("--fault", type=_fault, help=f"a fault in each answer: {_FAULT_NAMES}")
    parser.add_argument("--port", type=int, default=0, help="the port to listen on; 0 chooses a free one (default: 0)")
    parser.add_argument("--certificate", type=Path, help="a PEM certificate, to serve over TLS")
    parser.add_argument("--key", type=Path, help="the key of the certificate, as PEM")
    return parser


def _script(arguments: argparse.Namespace) -> Script:
    match arguments.script:
        case "solve":
            return scripts.solve(arguments.family, arguments.answer)
        case "give-up":
            return scripts.give_up()
        case "refuse":
            return scripts.refuse()
        case _:
            return (Shell(arguments.answer), Say("Done."))


def _fault(name: str) -> Fault:
    if name in _FAULTS:
        return _FAULTS[name]
    if name.isdecimal() and int(name) in _STATUSES:
        return Fail(int(name))
    raise argparse.ArgumentTypeError(f"{name!r} is not a fault: expected {_FAULT_NAMES}")


if __name__ == "__main__":
    sys.exit(main())
