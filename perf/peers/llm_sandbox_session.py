"""Run the trivial task of ``run.py`` in llm-sandbox, on Docker."""

from llm_sandbox import SandboxSession  # type: ignore[import-not-found]  # in a separate venv

from peers.each import in_threads


def batch(image: str, command: str, count: int, at_once: int) -> list[str]:
    """Open a session for each task, run the command, and close the session.

    The sessions do not install packages first, because that would need a network.
    """

    def one() -> str:
        with SandboxSession(lang="python", image=image, keep_template=True, skip_environment_setup=True) as session:
            return str(session.execute_command(command).stdout)

    return in_threads(one, count, at_once)
