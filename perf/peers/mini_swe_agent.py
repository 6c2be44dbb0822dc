"""The trivial task in mini-swe-agent's Docker environment."""

from minisweagent.environments.docker import DockerEnvironment  # type: ignore[import-not-found]  # in a venv of its own


def run(image: str, command: str) -> str:
    """Make an environment, run ``command``, and take it away."""
    environment = DockerEnvironment(image=image)
    try:
        return str(environment.execute({"command": command})["output"])
    finally:
        environment.cleanup()
