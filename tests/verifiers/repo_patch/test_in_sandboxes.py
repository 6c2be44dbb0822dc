"""Changes to a repository, judged in real sandboxes: a right change passes, a wrong one fails for a clear reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from securebench.errors import FailureReason, MaterializationError
from securebench.patches.model import FileVersion
from securebench.sandboxes.base import MIB, Limits
from securebench.testing.judging.repository import (
    BROKEN,
    EVERYTHING,
    FAIL_TO_PASS,
    FIXED,
    PASS_TO_PASS,
    PYTEST,
    TEST_PATCH,
    RepositoryJob,
)
from selected import variants
from verifiers.repo_patch.cheats import CHEATS, PRODUCT_CHEATS
from weaker import possible_reasons

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.sandboxes.base import SandboxDriver

FIX = {"project/numbers.py": FIXED}
COMMANDS: dict[str, Any] = {
    "module": PYTEST,
    "script": ["pytest", "-q", "tests/test_numbers.py"],
    "text": "pytest -q tests/test_numbers.py",
    "directory": ["pytest", "tests"],
    "everything": "python3 -m pytest",
    "options of Python": ["python3", "-B", "-u", "-W", "error", "-m", "pytest", "tests/test_numbers.py"],
    "one test": ["pytest", "-x", "-k", "double or half", "-p", "no:cacheprovider", "tests/test_numbers.py"],
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())
@pytest.mark.every_driver
def test_the_right_change_passes(command: Any, driver: SandboxDriver, image: str, tmp_path: Path) -> None:
    """An honest fix passes for each way to call pytest, and its evidence is complete."""
    verdict = RepositoryJob(command=command, image=image).judge(driver, tmp_path, FIX)
    assert verdict.reason is None, (verdict.message, verdict.metadata)
    evidence: Any = verdict.metadata["evidence"]
    assert evidence["kind"] == "test_by_test"
    assert evidence["controls_failed"] == evidence["controls"] > 0
    assert evidence["required_passed"] == evidence["required"] == 4
    assert verdict.metadata["phase"] == "verdict"


def test_options_of_python_reach_the_tests(driver: SandboxDriver, image: str, tmp_path: Path) -> None:
    """With ``-W error`` before ``-m pytest``, a change that warns fails; without it, the change passes."""
    change = {"project/numbers.py": f"import warnings\n\nwarnings.warn('slow')\n{FIXED}"}
    strict = RepositoryJob(command=["python3", "-W", "error", *PYTEST[1:]], image=image)
    verdict = strict.judge(driver, tmp_path / "strict", change)
    assert verdict.reason is FailureReason.TESTS_FAILED
    assert RepositoryJob(image=image).judge(driver, tmp_path / "plain", change).reason is None


@pytest.mark.parametrize(
    "command", ["make -f /dev/null x || python3 -m pytest tests", ["sh", "-c", "exec pytest tests"]]
)
def test_other_commands_are_judged_by_their_exit_code(
    command: Any, driver: SandboxDriver, image: str, tmp_path: Path
) -> None:
    """If no test runner is recognised in a command, its exit code decides, and the evidence is only ``exit_code``.

    A shell that starts pytest is not recognised as pytest.
    """
    job = RepositoryJob(command=command, image=image, expect={})
    right = job.judge(driver, tmp_path / "right", FIX)
    wrong = job.judge(driver, tmp_path / "wrong", {"README.md": "x\n"})
    assert (right.reason, right.metadata["evidence"]) == (None, {"kind": "exit_code"})
    assert wrong.reason is FailureReason.TESTS_FAILED


def test_a_task_that_requires_evidence_does_not_pass_by_its_exit_code(
    driver: SandboxDriver, image: str, tmp_path: Path
) -> None:
    """A pass without controls, here because the test file calls ``globals()``, rests on the exit code only.

    If the task requires ``test_by_test``, such a pass becomes a failure with the reason ``no_verdict``.
    """
    patch = TEST_PATCH.replace("-1,5 +1,17", "-1,5 +1,18").replace("+import pytest\n", "+import pytest\n+globals()\n")
    plain = RepositoryJob(image=image, test_patch=patch).judge(driver, tmp_path / "plain", FIX)
    evidence: Any = plain.metadata["evidence"]
    assert (plain.reason, evidence["kind"]) == (None, "exit_code")
    strict = RepositoryJob(image=image, test_patch=patch, require="test_by_test").judge(
        driver, tmp_path / "strict", FIX
    )
    assert strict.reason is FailureReason.NO_VERDICT
    assert "'tests.require' is 'test_by_test'" in strict.message


TELLING = {
    "from_call swallows": FailureReason.TAMPERED,
    "report says passed": FailureReason.TAMPERED,
    "equal to everything": FailureReason.TAMPERED,
    "os._exit(0) at import": FailureReason.TAMPERED,
    "skip": FailureReason.TESTS_FAILED,
    "forged junit": FailureReason.TESTS_FAILED,
}


USUAL = {
    *TELLING,
    "conftest makereport",
    "sitecustomize",
    "pytest.ini sets --collect-only",
    "exit status is a property",
    "rewrites tests",
    "prints markers",
    "os._exit(0) at exit",
    "shadowing module",
    "SystemExit in a call",
    "entry point",
}
"""The cheats that are always tested; the others need ``--long``. ``evidence/`` tests cheats without a sandbox."""


@pytest.mark.parametrize("name", variants(CHEATS, USUAL.__contains__))
def test_no_cheat_passes(name: str, driver: SandboxDriver, image: str, tmp_path: Path) -> None:
    """A cheat does not pass, even if the policy allows changes to all files.

    By default, a cheat that changes a protected file is a policy violation. For the cheats in ``TELLING``, the exact
    reason is checked.
    """
    if name not in PRODUCT_CHEATS:
        plain = RepositoryJob(image=image).judge(driver, tmp_path / "default", CHEATS[name])
        assert plain.reason is FailureReason.POLICY_VIOLATION
        assert plain.metadata["violations"]
    lenient = RepositoryJob(image=image, policy=EVERYTHING).judge(driver, tmp_path / "lenient", CHEATS[name])
    assert lenient.reason is not None
    assert lenient.reason is TELLING.get(name, lenient.reason)


@pytest.mark.every_driver
def test_the_candidate_that_changes_nothing_that_matters_fails(
    driver: SandboxDriver, image: str, tmp_path: Path
) -> None:
    """A change to an unrelated file fails, because the task's tests replace those of the image.

    The image's own tests would pass. The message names no test.
    """
    verdict = RepositoryJob(image=image).judge(driver, tmp_path, {"README.md": "Better numbers.\n"})
    assert verdict.reason is FailureReason.TESTS_FAILED
    evidence: Any = verdict.metadata["evidence"]
    assert evidence["missed"] == ["fail_to_pass/0", "fail_to_pass/1", "fail_to_pass/2"]
    assert "test_double" not in str(verdict)


def test_every_expected_test_must_have_run(driver: SandboxDriver, image: str, tmp_path: Path) -> None:
    """A task fails if an expected test was not reported, even if all tests that ran have passed."""
    expect = {"fail_to_pass": [*FAIL_TO_PASS, "tests/test_numbers.py::test_triple"], "pass_to_pass": PASS_TO_PASS}
    verdict = RepositoryJob(image=image, expect=expect).judge(driver, tmp_path, FIX)
    assert verdict.reason is FailureReason.TESTS_FAILED
    assert "fail_to_pass/3" in verdict.message


def test_without_expected_ids_no_test_may_fail(driver: SandboxDriver, image: str, tmp_path: Path) -> None:
    """Without expected ids, a fix passes, and a change that breaks any test fails."""
    broken_half = FIXED.replace("/ 2", "/ 3")
    job = RepositoryJob(image=image, expect={})
    assert job.judge(driver, tmp_path / "a", FIX).passed
    assert job.judge(driver, tmp_path / "b", {"project/numbers.py": broken_half}).reason is FailureReason.TESTS_FAILED


MORE_TESTS = """\
diff --git a/tests/test_more.py b/tests/test_more.py
new file mode 100644
--- /dev/null
+++ b/tests/test_more.py
@@ -0,0 +1,2 @@
+def test_more():
+    assert len("ab") == 2
"""
VANISH = """\
import sys
frame = sys._getframe()
while frame:
    if "test_numbers" in frame.f_globals["__name__"]:
        frame.f_globals["__test__"] = False
    frame = frame.f_back
"""


OTHER_NAMES = """\
--- /dev/null
+++ b/tests/pytest.ini
@@ -0,0 +1,3 @@
+[pytest]
+pythonpath = ..
+python_classes = Check*
--- /dev/null
+++ b/tests/test_treble.py
@@ -0,0 +1,14 @@
+from project.numbers import treble
+
+
+class TestData:
+    def test_pair(self):
+        return 2, 6
+
+
+def test_treble():
+    number, expected = TestData().test_pair()
+    assert treble(number) == expected
+    assert treble(3) == 9
+    assert treble(4) == 12
+    assert treble(5) == 15
"""


def test_methods_that_the_configuration_does_not_call_tests_are_not_missed(
    driver: SandboxDriver, image: str, tmp_path: Path
) -> None:
    """Methods of a class that ``python_classes`` excludes are not required.

    The configuration file is in the command's working directory, and the test file cannot be loaded without the fix.
    """
    job = RepositoryJob(
        image=image,
        command=["pytest", "-q", "test_treble.py"],
        workdir="/srv/project/tests",
        test_patch=OTHER_NAMES,
        expect={},
    )
    treble = "\n\ndef treble(number):\n    return number * 3\n"
    verdict = job.judge(driver, tmp_path, {"project/numbers.py": FIXED + treble})
    assert verdict.reason is None, (verdict.message, verdict.metadata)


def test_tests_that_a_change_makes_vanish_are_missed(driver: SandboxDriver, image: str, tmp_path: Path) -> None:
    """Without expected ids, every test that exists without the change must run.

    A change that makes tests vanish fails, although the remaining test passes.
    """
    job = RepositoryJob(image=image, command=["pytest", "tests"], test_patch=TEST_PATCH + MORE_TESTS, expect={})
    fixed = job.judge(driver, tmp_path / "fixed", FIX)
    evidence: Any = fixed.metadata["evidence"]
    assert (fixed.reason, evidence["collection"], evidence["collected"]) == (None, "complete", 4), fixed
    cheat = job.judge(driver, tmp_path / "cheat", {"project/numbers.py": VANISH + BROKEN})
    evidence = cheat.metadata["evidence"]
    assert cheat.reason is FailureReason.TESTS_FAILED, cheat
    assert (evidence["vanished"], evidence["outcomes"]) == (3, {"passed": 1})


def test_odd_names_are_laid_out_as_they_are(
    driver: SandboxDriver, image: str, tmp_path: Path, host_canary: Path
) -> None:
    """File names with quotes, line feeds, dollars, leading dashes or invalid UTF-8 are kept, and never executed."""
    names = ["-rf", "--help", "$(touch x)", "a\nb", "it's", "`id`", ' "q" ', "\udcff\udcfe", "*", "new/-n/$HOME"]
    changes: dict[str, Any] = {**FIX, **dict.fromkeys(names, "odd\n"), "tests/odd/it's a name": None}
    changes["run me"] = FileVersion(b"#!/bin/sh\n", executable=True)
    check = (
        "import os, sys; names = {os.fsencode(n) for n in os.listdir('.')};"
        "assert {b'-rf', b'--help', b'$(touch x)', b'a\\nb', b\"it's\"} <= names, names;"
        "assert {b'`id`', b' \"q\" ', b'\\xff\\xfe', b'*'} <= names, names;"
        "assert b'x' not in names and not os.path.exists('tests/odd');"
        "assert open('new/-n/$HOME').read() == 'odd\\n' and os.access('run me', os.X_OK)"
    )
    job = RepositoryJob(image=image, command=["python3", "-c", check], expect={}, policy=EVERYTHING)
    verdict = job.judge(driver, tmp_path, changes)
    assert verdict.reason is None, verdict


def test_the_environment_of_a_check_is_fixed(driver: SandboxDriver, image: str, tmp_path: Path) -> None:
    """A check gets only harmless variables of the image, and no directory in ``PATH`` that a candidate can write to."""
    check = (
        "import os; e = dict(os.environ);"
        "assert e['PATH'] == '/usr/local/bin:/usr/bin:/bin', e;"
        "known = {'PATH', 'HOME', 'LANG', 'LC_ALL', 'JAVA_HOME'};"
        "assert known <= set(e) <= known | {'PWD', 'HOSTNAME', 'SHLVL', 'OLDPWD', '_', 'LC_CTYPE'}, e;"
        "assert os.getcwd() == '/srv/project/project'; assert not os.listdir('/opt/securebench/changes')"
    )
    job = RepositoryJob(image=image, command=["python3", "-c", check], expect={}, workdir="/srv/project/project")
    verdict = job.judge(driver, tmp_path, FIX)
    assert verdict.reason is None, verdict


def test_a_working_directory_that_is_gone_is_a_failure(driver: SandboxDriver, image: str, tmp_path: Path) -> None:
    """A change that removes the tests' working directory fails, instead of being an error that is retried."""
    job = RepositoryJob(image=image, command=["true"], expect={}, workdir="/srv/project/project")
    verdict = job.judge(driver, tmp_path, dict.fromkeys(("project/__init__.py", "project/numbers.py")))
    assert verdict.reason is FailureReason.NO_VERDICT, verdict


def test_a_file_is_no_working_directory(driver: SandboxDriver, image: str, tmp_path: Path) -> None:
    """A change that replaces the tests' working directory with a file fails, even if the runtime would accept it."""
    job = RepositoryJob(image=image, command=["true"], expect={}, workdir="/srv/project/project")
    changes: dict[str, Any] = dict.fromkeys(("project/__init__.py", "project/numbers.py"))
    verdict = job.judge(driver, tmp_path, {**changes, "project": "a file\n"})
    assert verdict.reason is FailureReason.NO_VERDICT, verdict


def test_a_check_has_no_network(driver: SandboxDriver, image: str, tmp_path: Path) -> None:
    """The sandbox of a check has no network interface except the loopback."""
    check = "import socket; assert [n for _, n in socket.if_nameindex() if n != 'lo'] == []"
    assert RepositoryJob(image=image, command=["python3", "-c", check], expect={}).judge(driver, tmp_path, FIX).passed


ENDINGS: dict[str, tuple[str, FailureReason]] = {
    "endless": ("import time\nwhile True: time.sleep(1)", FailureReason.CANDIDATE_TIMEOUT),
    "memory": ("x = [bytearray(1 << 20) for _ in range(4096)]", FailureReason.CANDIDATE_OUT_OF_MEMORY),
    "output": (
        "import os\nwhile True: os.write(2, b'x' * 65536)",
        FailureReason.CANDIDATE_OUTPUT_LIMIT,
    ),
    "crash": ("import os; os.abort()", FailureReason.NO_VERDICT),
}


@pytest.mark.parametrize(("code", "reason"), ENDINGS.values(), ids=ENDINGS.keys())
def test_who_breaks_the_check_has_failed(
    code: str, reason: FailureReason, driver: SandboxDriver, image: str, tmp_path: Path
) -> None:
    """A candidate that uses up time, memory or output, or crashes the tests, fails with a matching reason."""
    job = RepositoryJob(image=image, command=[*PYTEST, "-s"], timeout=10, limits=Limits(memory=128 * MIB, output=MIB))
    result = job.judge(driver, tmp_path, {"project/numbers.py": f"{FIXED}\n{code}\n"})
    assert result.reason in possible_reasons(driver, {reason})


def test_a_command_that_is_not_there_gives_no_verdict(driver: SandboxDriver, image: str, tmp_path: Path) -> None:
    """A command whose program does not exist gives ``no_verdict``."""
    job = RepositoryJob(image=image, command=["no-such-program"], expect={})
    assert job.judge(driver, tmp_path, FIX).reason is FailureReason.NO_VERDICT


def test_what_selects_nothing_gives_no_verdict(driver: SandboxDriver, image: str, tmp_path: Path) -> None:
    """A command that selects no test, so that at most controls run, gives ``no_verdict``."""
    job = RepositoryJob(image=image, command=[*PYTEST, "-k", "nothing_is_called_so"], expect={})
    assert job.judge(driver, tmp_path, FIX).reason is FailureReason.NO_VERDICT


SETUP = """\
--- a/project/numbers.py
+++ b/project/numbers.py
@@ -4,3 +4,6 @@

 def half(number):
     return number / 2
+
+
+LIMIT = 10
"""


def test_the_candidate_is_carried_over_to_what_the_setup_made(
    driver: SandboxDriver, image: str, tmp_path: Path
) -> None:
    """If the task's setup patch and the candidate change the same file, both changes are judged together.

    A change that conflicts with the setup patch does not apply.
    """
    check = "import project.numbers as n; assert n.LIMIT == 10 and n.double(2) == 4"
    job = RepositoryJob(image=image, setup_patch=SETUP, command=["python3", "-c", check], expect={})
    assert job.judge(driver, tmp_path / "fits", FIX).passed
    clash = {"project/numbers.py": FIXED.replace("number / 2", "number // 2")}
    assert job.judge(driver, tmp_path / "clash", clash).reason is FailureReason.PATCH_DOES_NOT_APPLY
    same = {"project/numbers.py": BROKEN + "\n\nLIMIT = 10\n"}
    assert job.judge(driver, tmp_path / "same", same).reason is FailureReason.PATCH_DOES_NOT_APPLY


def test_tests_are_put_back_where_a_candidate_may_change_them(
    driver: SandboxDriver, image: str, tmp_path: Path
) -> None:
    """A deleted test file and changed configuration files are restored before the tests run."""
    changes: dict[str, Any] = {
        **FIX,
        "tests/test_numbers.py": None,
        "conftest.py": "raise SystemExit(0)\n",
        "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '--collect-only'\n",
    }
    verdict = RepositoryJob(image=image, policy=EVERYTHING).judge(driver, tmp_path, changes)
    assert verdict.reason is None, verdict
    assert verdict.metadata["restored"] == ["conftest.py", "pyproject.toml"]


def test_tests_that_nothing_names_are_put_back_too(driver: SandboxDriver, image: str, tmp_path: Path) -> None:
    """If the command names a directory, changed tests in it are restored, and the candidate's new tests are kept."""
    changes = {
        "project/numbers.py": FIXED.replace("/ 2", "/ 3"),
        "tests/test_numbers.py": "def test_half(): pass\n",
        "tests/test_new.py": "def test_new(): pass\n",
    }
    job = RepositoryJob(image=image, command=["pytest", "tests"], test_patch="", expect={}, policy=EVERYTHING)
    verdict = job.judge(driver, tmp_path, changes)
    assert verdict.reason is FailureReason.TESTS_FAILED
    assert verdict.metadata["restored"] == ["tests/test_numbers.py"]


@pytest.mark.parametrize("commit", ["f" * 40, "89abcdef"])
def test_another_commit_is_no_score(commit: str, driver: SandboxDriver, image: str, tmp_path: Path) -> None:
    """An image at another commit than the task's is an error, and not a failure of the candidate."""
    with pytest.raises(MaterializationError) as caught:
        RepositoryJob(image=image, base_commit=commit).judge(driver, tmp_path, FIX)
    assert caught.value.code == "base-commit-mismatch"


@pytest.mark.parametrize(
    ("patches", "code"),
    [
        ({"test_patch": TEST_PATCH.replace("half(4)", "half(5)")}, "patch-does-not-apply"),
        ({"setup_patch": SETUP.replace("half", "half_of")}, "patch-does-not-apply"),
        ({"setup_patch": "half a patch"}, "patch-invalid"),
    ],
    ids=["test patch", "setup patch", "no patch"],
)
def test_a_task_whose_patches_do_not_fit_is_no_score(
    patches: Any, code: str, driver: SandboxDriver, image: str, tmp_path: Path
) -> None:
    """A patch of the task that cannot be applied is an error with a matching code. It shows no text of the patch."""
    with pytest.raises(MaterializationError) as caught:
        RepositoryJob(image=image, **patches).judge(driver, tmp_path, FIX)
    assert caught.value.code == code
    assert "half" not in str(caught.value)
