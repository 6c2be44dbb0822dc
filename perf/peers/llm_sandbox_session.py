"""The trivial task in llm-sandbox, on Docker."""

from llm_sandbox import SandboxSession  # type: ignore[import-not-found]  # in a venv of its own


def run(image: str, _command: str) -> str:
    """Open a session, run the code, and close it. Its packages are not set up, which would need a network."""
    with SandboxSession(lang="python", image=image, keep_template=True, skip_environment_setup=True) as session:
        return str(session.run("print(6 * 7)").stdout)
