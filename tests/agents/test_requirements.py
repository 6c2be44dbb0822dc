"""The reader of pinned requirements: only exact versions with hashes are accepted."""

from __future__ import annotations

from pathlib import Path

import pytest

from securebench.agents.requirements import read_requirements
from securebench.errors import ConfigError

HASH = f"--hash=sha256:{'ab' * 32}"


def read(tmp_path: Path, text: str) -> tuple[str, ...]:
    """Return the requirements of a file with this text."""
    path = tmp_path / "requirements.txt"
    path.write_text(text)
    return read_requirements(path)


def test_pins_with_hashes_are_read(tmp_path: Path) -> None:
    """Comments, continued lines and several hashes are understood, because common tools write them."""
    text = f"# made by a tool\n\na.b==1.0+cpu {HASH}  # via c\nc-d==2!3 \\\n    {HASH} \\\n    {HASH}\n    # via e\n"
    assert read(tmp_path, text) == (f"a.b==1.0+cpu {HASH}", f"c-d==2!3 {HASH} {HASH}")


@pytest.mark.parametrize(
    "line",
    [
        "tool==1",
        f"tool {HASH}",
        f"tool>=1 {HASH}",
        f"tool==1.* {HASH}",
        f"tool==1,>0 {HASH}",
        f"tool[extra]==1 {HASH}",
        f"tool==1; python_version > '3' {HASH}",
        f"tool @ https://example.com/tool.tar.gz {HASH}",
        f"https://example.com/tool.tar.gz {HASH}",
        f"git+https://example.com/tool {HASH}",
        f"./tool.tar.gz {HASH}",
        f"-e . {HASH}",
        f"--index-url https://example.com/ {HASH}",
        f"tool==1 {HASH} --global-option=x",
        f"tool==1 {HASH} --config-settings=a=b",
        f"tool==${{HOME}} {HASH}",
        "tool==1 --hash=md5:00000000000000000000000000000000",
        "-r other.txt",
        "-c other.txt",
        f"tool==1 {HASH} \\\n-r other.txt",
    ],
)
def test_anything_else_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    """I26: a line with an option, URL, path or marker, or without exact version or sha256 hash, is refused."""
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, f"first==1 {HASH}\n{line}\nlast==1 {HASH}\n")
    assert caught.value.code == "agent-requirements"
    assert [problem.location.line for problem in caught.value.problems if problem.location] == [2]


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    """A file without requirements is refused, because nothing would be installed."""
    with pytest.raises(ConfigError, match="no requirement"):
        read(tmp_path, "# nothing\n")


def test_the_own_file_is_read() -> None:
    """The requirements files that come with SecureBench are valid, and contain the agent's own package."""
    import securebench

    own = Path(securebench.__file__).parent.glob("agents/programs/*.txt")
    found = {path.stem: {line.partition("==")[0] for line in read_requirements(path)} for path in own}
    assert found.keys() == {"aider", "mini_swe_agent"}
    assert "aider-chat" in found["aider"]
    assert "mini-swe-agent" in found["mini_swe_agent"]
