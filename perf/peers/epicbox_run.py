"""The trivial task in epicbox."""

import epicbox  # type: ignore[import-not-found]  # in a venv of its own


def run(image: str, command: str) -> str:
    """Run ``command`` in a sandbox of its own."""
    epicbox.configure(profiles=[epicbox.Profile("python", image)])
    return str(epicbox.run("python", command, limits={"cputime": 10, "memory": 256})["stdout"].decode())
