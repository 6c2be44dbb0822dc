"""Run the trivial task of ``run.py`` in epicbox."""

import epicbox  # type: ignore[import-not-found]  # in a separate venv

from peers.each import in_threads


def batch(image: str, command: str, count: int, at_once: int) -> list[str]:
    """Run each task in a separate sandbox."""
    epicbox.configure(profiles=[epicbox.Profile("python", image)])

    def one() -> str:
        return str(epicbox.run("python", command, limits={"cputime": 10, "memory": 256})["stdout"].decode())

    return in_threads(one, count, at_once)
