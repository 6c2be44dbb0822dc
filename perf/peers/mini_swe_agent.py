"""Run the trivial task of ``run.py`` in mini-swe-agent's Docker environment."""

from minisweagent.environments.docker import DockerEnvironment  # type: ignore[import-not-found]  # in a separate venv

from peers.each import in_threads


def batch(image: str, command: str, count: int, at_once: int) -> list[str]:
    """Create an environment for each task, run ``command``, and remove the environment."""

    def one() -> str:
        environment = DockerEnvironment(image=image)
        try:
            return str(environment.execute({"command": command})["output"])
        finally:
            environment.cleanup()

    return in_threads(one, count, at_once)
