"""Files of pins: those that SecureBench ships, the examples in the documentation, and invalid ones."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from importers.swe_records import row
from securebench.errors import ConfigError, SourceLocation
from securebench.images.build.recipe_file import read_recipe
from securebench.images.build.recipe_kinds import DerivedRecipe
from securebench.importers.swe_bench.images import WORKDIR, built_image
from securebench.importers.swe_bench.pins import Pins, Setup, SourceRelease, VersionModel, read_pins, shipped_pins
from securebench.importers.swe_bench.records import instance
from securebench.limits import Limits
from securebench.sandboxes.base import Command, SandboxSpec

if TYPE_CHECKING:
    from securebench.sandboxes.oci import OciDriver

HOW_TO = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "import-a-benchmark.md"
GOOD = """\
setups:
  - repository: pallets/flask
    requirements: [pytest==7.3.1, Jinja2==3.1.2]
    versions:
      "2.3": {}
"""


def written(tmp_path: Path, text: str) -> Path:
    """Write a file of pins."""
    path = tmp_path / "pins.yaml"
    path.write_text(text)
    return path


def test_our_own_are_whole() -> None:
    """Every shipped release has a setup, a SHA-256 digest, and the id of the commit that a build makes from it."""
    pins = shipped_pins()
    assert pins.releases.keys() <= pins.setups.keys()
    for release in pins.releases.values():
        assert (len(release.sha256), len(release.commit)) == (64, 40)
    assert {repository for repository, _ in pins.setups} >= {"django/django", "sympy/sympy", "sphinx-doc/sphinx"}
    assert {version for name, version in pins.setups if name == "django/django"} == {"3.2", "4.0", "4.1", "4.2", "5.0"}


def test_the_example_of_the_documentation_is_one(tmp_path: Path) -> None:
    """The example in the how-to is a valid file of pins, with setups and releases."""
    (text,) = re.findall(r"```yaml\n(setups:.*?)```", HOW_TO.read_text(), re.DOTALL)
    pins = read_pins(written(tmp_path, text))
    assert pins.setups
    assert pins.releases


def test_compiled_modules_come_from_a_wheel(tmp_path: Path) -> None:
    """The install steps in the how-to are valid, and the first copies only the compiled files of a wheel."""
    (text,) = re.findall(r"```yaml\n(    requirements: \[scikit-learn.*?)```", HOW_TO.read_text(), re.DOTALL)
    head = 'setups:\n  - repository: scikit-learn/scikit-learn\n    versions: {"1.3": {}}\n'
    setup = read_pins(written(tmp_path, head + text)).setups["scikit-learn/scikit-learn", "1.3"]
    program, isolated, *rest = setup.install[0]
    assert (program, isolated, len(setup.install)) == ("python3", "-I", 3)
    site, tree = tmp_path / "site", tmp_path / "tree"
    (tree / "sklearn").mkdir(parents=True)
    files = ["sklearn/a.py", "sklearn/a.cpython-311.so", "scikit_learn.libs/libgomp-1.so.1.0.0"]
    for name in [*files, "scikit_learn-1.2.2.dist-info/METADATA"]:
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text("Metadata-Version: 2.1\nName: scikit-learn\nVersion: 1.2.2\n")
    (site / "scikit_learn-1.2.2.dist-info/RECORD").write_text("".join(f"{name},,\n" for name in files))
    subprocess.run([sys.executable, *rest], check=True, cwd=tree, env={"PYTHONPATH": str(site)})
    assert sorted(str(path.relative_to(tree)) for path in tree.rglob("*.*") if path.is_file()) == sorted(files[1:])


def test_a_users_pins_go_before_ours(tmp_path: Path) -> None:
    """A user's setup replaces the shipped setup of the same version, together with the shipped release."""
    mine = read_pins(written(tmp_path, GOOD))
    both = mine.over(shipped_pins())
    assert both.setups["pallets/flask", "2.3"] == mine.setups["pallets/flask", "2.3"]
    assert both.setups["pallets/flask", "2.3"].requirements == ["pytest==7.3.1", "Jinja2==3.1.2"]
    assert ("pallets/flask", "2.3") not in both.releases
    assert both.setups["sympy/sympy", "1.12"] == shipped_pins().setups["sympy/sympy", "1.12"]


def test_a_setup_becomes_a_recipe(tmp_path: Path) -> None:
    """The recipe has the base, Python and install steps of the setup. Without a pin for pytest, it has no checks."""
    setup = Setup(
        repository="pallets/flask",
        versions={"2.3": VersionModel()},
        requirements=["six==1.16.0"],
        base="my/python:3.9",
        python="3.9",
        version_from_git=True,
        install=[["make", "install"]],
    )
    release = SourceRelease(name="Flask", version="2.2.5", sha256="0" * 64)
    key = ("pallets/flask", "2.3")
    image = built_image(instance(SourceLocation("rows"), row()), None, Pins({key: setup}, {key: release}))
    path = tmp_path / "recipe.yaml"
    path.write_text(image.recipe_text)
    assert isinstance(read_recipe(path), DerivedRecipe)
    assert image.recipe is not None
    assert (image.recipe["base"], image.recipe["python"], image.recipe["checks"]) == ("my/python:3.9", "3.9", [])
    assert image.recipe["install"] == [["env", "SETUPTOOLS_SCM_PRETEND_VERSION=2.2.5", "make", "install"]]
    assert image.base_commit == ""


@pytest.mark.parametrize(
    ("old", "new", "place", "message"),
    [
        ("requirements:", "requirement:", "3:5", "unknown key 'requirement'"),
        ("pytest==7.3.1", "pytest>=7", "3:20", "must pin one version"),
        ("pytest==7.3.1", "pytest==7.3.1; python_version<'4'", "3:20", "must pin one version"),
        ("Jinja2==3.1.2", "PyTest==7.3.2", "3:35", "pytest is already pinned above"),
        ("pallets/flask", "flask", "2:17", "must be owner/name"),
        ('"2.3": {}', '"2.3": {release: {name: Flask, version: "2.2.5"}}', "5:24", "sha256 is missing"),
        ('"2.3": {}', '"2.3": {release: {name: Flask, version: "2.2.5", sha256: "abc"}}', "5:64", "sha256"),
        ('      "2.3": {}\n', "", "5:1", "versions must be an object"),
        ("setups:", "setup:", "1:1", "unknown key 'setup'"),
        ("    requirements", '    python: "2.7"\n    requirements', "3:13", "python"),
        ("    requirements", "    install: [[]]\n    requirements", "3:15", "install[0]"),
        ("    requirements", "    install: pip\n    requirements", "3:14", "install must be a list"),
    ],
)
def test_what_is_wrong_is_told_by_line_and_column(tmp_path: Path, old: str, new: str, place: str, message: str) -> None:
    """Each mistake in a file of pins is an error with its line and column."""
    text = GOOD.replace(old, new)
    assert text != GOOD
    with pytest.raises(ConfigError) as caught:
        read_pins(written(tmp_path, text))
    lines = str(caught.value).splitlines()
    assert any(f"pins.yaml:{place} " in line and message in line for line in lines), lines


def test_a_version_is_set_up_once(tmp_path: Path) -> None:
    """Two setups of the same version in one file are an error, reported at the second."""
    again = GOOD.partition("\n")[2]
    with pytest.raises(ConfigError, match=r"pins\.yaml:9:7 .*pallets/flask 2\.3 already has a setup above"):
        read_pins(written(tmp_path, GOOD + again))


TESTS = {
    "django/django": "python3 tests/runtests.py --settings=test_sqlite --parallel=1 basic migrations.test_optimizer",
    "mwaskom/seaborn": "python3 -m pytest -q tests/test_utils.py tests/test_statistics.py",
    "pallets/flask": "python3 -m pytest -q tests/test_blueprints.py tests/test_basic.py",
    "psf/requests": "python3 -m pytest -q tests/test_utils.py -k prepend_scheme",
    "pydata/xarray": "python3 -m pytest -q xarray/tests/test_variable.py",
    "pytest-dev/pytest": "python3 -m pytest -q testing/test_mark.py testing/python/raises.py",
    "sphinx-doc/sphinx": "python3 -m pytest -q tests/test_domain_py.py tests/test_markup.py",
    "sympy/sympy": "python3 -m pytest -q sympy/core/tests/test_basic.py sympy/core/tests/test_numbers.py",
}
"""Some tests of each repository, quick enough to run for each of its releases."""


@pytest.mark.oci
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("key", sorted(shipped_pins().releases), ids=" ".join)
def test_what_we_ship_builds_and_its_tests_pass(
    key: tuple[str, str], tmp_path: Path, oci_driver: OciDriver, doomed_images: list[str]
) -> None:
    """Building a shipped release makes the commit that the pins name, and some of its tests pass in a sandbox."""
    repository, version = key
    name = f"{repository.replace('/', '__')}-1"
    one = instance(SourceLocation("rows"), row(repo=repository, version=version, instance_id=name))
    image = built_image(one, None, shipped_pins())
    doomed_images.append(image.name)
    (tmp_path / "recipe.yaml").write_text(image.recipe_text)
    argv = [sys.executable, "-m", "securebench", "images", "build", "--rebuild", "--json", str(tmp_path)]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["commit"] == image.base_commit
    spec = SandboxSpec(
        image=oci_driver.resolve_image(image.name),
        workdir=WORKDIR,
        read_only=False,
        user=(0, 0),
        limits=Limits(memory=3 * 1024**3, tmpfs=1024**3, pids=512),
    )
    with oci_driver.create(spec) as sandbox:
        result = sandbox.run(Command(argv=tuple(TESTS[repository].split()), timeout_seconds=900, workdir=WORKDIR))
    assert result.exit_code == 0, (result.stdout + result.stderr)[-3000:].decode(errors="replace")
