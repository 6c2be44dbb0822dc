"""Probes that need no sandbox: hostile trees, archives, patches, packs and text answers."""

from __future__ import annotations

import os
import resource
import secrets
from functools import partial
from typing import TYPE_CHECKING, Final

from securebench.audit.installation.probes import ProbeContext, ProbeFinding, ProbeKind, findings
from securebench.benchmark_compiler import compile_benchmark_pack
from securebench.benchmark_pack import load_benchmark_pack
from securebench.candidates.store import CandidateStore
from securebench.errors import ConfigError, ImageError
from securebench.fs.rmtree import make_fresh_directory, make_private_directory, remove_tree
from securebench.fs.safe_open import TreeRefusedError
from securebench.fs.tree_archive import replace_content
from securebench.patches.apply import apply_patch
from securebench.patches.model import FileVersion, PatchError
from securebench.patches.policy import PathPolicy, violations
from securebench.tasks import CandidateKind
from securebench.testing.attacks import archives, packs, patches, texts, trees
from securebench.testing.judging.text import verdict
from securebench.verifiers.text.free_response import FreeResponseVerifier
from securebench.verifiers.text.multiple_choice import MultipleChoiceVerifier
from securebench.verifiers.text.short_answer import ShortAnswerVerifier

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from securebench.verifiers.base import TextVerifier

MAX_SECONDS: Final = 20.0
"""The CPU time that one attack may use outside the kernel, in seconds."""

MAX_TOTAL_SECONDS: Final = 60.0
"""The CPU time that one attack may use in total, in seconds.

On ext4, creating the 50,000 files of some attacks took up to 23 s, nearly all of it in the kernel.
"""

_VERIFIERS: Final[Mapping[str, TextVerifier]] = {
    verifier.family: verifier for verifier in (MultipleChoiceVerifier(), ShortAnswerVerifier(), FreeResponseVerifier())
}
_TREES: Final = trees.TRAPS
_ARCHIVES: Final = {attack.name: attack for attack in archives.ATTACKS}
_PATCHES: Final = {f"{attack.entry} {attack.name}": attack for attack in patches.ATTACKS}
_PACKS: Final = {attack.name: attack for attack in packs.ATTACKS}
_TEXTS: Final = {cheat.name: cheat for cheat in texts.CHEATS}


def _timed(attempt: Callable[[], ProbeFinding]) -> ProbeFinding:
    """Return the finding of ``attempt``, or a problem if it used too much CPU time."""
    start = resource.getrusage(resource.RUSAGE_THREAD)
    finding = attempt()
    end = resource.getrusage(resource.RUSAGE_THREAD)
    user, system = end.ru_utime - start.ru_utime, end.ru_stime - start.ru_stime
    if user <= MAX_SECONDS and user + system <= MAX_TOTAL_SECONDS:
        return finding
    return ProbeFinding.of(
        finding.item, f"it used {user + system:.0f} s of CPU time, {system:.0f} s of it in the kernel", ""
    )


def seal_trees(context: ProbeContext, names: Collection[str]) -> Iterator[ProbeFinding]:
    """For each trap, seal a workspace that contains it.

    Workspaces are sealed one after the other, because this process changes its working directory for each of them.
    """
    before = os.getcwd()  # noqa: PTH109 - a string is enough to change back
    places = context.scratch / "trees"
    make_private_directory(places)

    def attempt(name: str, trap: trees.Trap) -> ProbeFinding:
        root = places / name
        make_fresh_directory(root)
        try:
            trap.build(root)
            os.chdir(root.parent if trap.entry.startswith("H") else root)  # git and other tools run inside the tree
            problem, how = _sealed(context.scratch / f"store-{name}", root, trap.outcome)
            ran = [path for path in ("ran", "canary") if os.path.lexists(root / path)]
            return ProbeFinding.of(name, "a program in the tree was executed" if ran else problem, how)
        finally:
            os.chdir(before)
            remove_tree(root)

    yield from findings(_TREES, names, lambda name, trap: _timed(partial(attempt, name, trap)), workers=1)


def _sealed(store: Path, root: Path, expected: str) -> tuple[str, str]:
    """Seal a tree. Return what is wrong with the outcome (empty if nothing), and what was done with the tree."""
    try:
        CandidateStore(store).seal_tree(CandidateKind.WORKSPACE, root)
        outcome, how = trees.SEALED, "sealed as data"
    except TreeRefusedError as refused:
        outcome, how = refused.refusal.value, f"refused: {refused.refusal.value}"
        if not refused.offenders:
            return "it was refused, but the error names no path", ""
    return ("" if outcome == expected else f"the outcome was '{outcome}', not '{expected}'"), how


def unpack_archives(context: ProbeContext, names: Collection[str]) -> Iterator[ProbeFinding]:
    """Check that unpacking each archive writes nothing outside the target directory, and does not fill the disk."""
    replace_content(_directory(context, "honest"), [archives.HONEST])

    def attempt(name: str, attack: archives.ArchiveAttack) -> ProbeFinding:
        root = _directory(context, "archive")
        inside = root / "middle" / "inside"  # two levels deep, so that a link to ../.. leads no further than root
        inside.mkdir(parents=True)
        try:
            replace_content(inside, [attack.data(str(root))])
            how = "unpacked inside its directory"
        except (ImageError, OSError) as error:
            how = f"refused: {error}"
        outside = [str(path.relative_to(root)) for place in (root, inside.parent) for path in place.iterdir()]
        outside = sorted(set(outside) - {"middle", "middle/inside"})
        size = sum(path.lstat().st_blocks * 512 for path in inside.rglob("*"))
        problem = f"it wrote outside its directory: {outside}" if outside else ""
        return ProbeFinding.of(name, problem or ("it unpacked more than 512 MiB" if size > _MAX_UNPACKED else ""), how)

    yield from findings(_ARCHIVES, names, lambda name, attack: _timed(partial(attempt, name, attack)), workers=1)


_MAX_UNPACKED: Final = 512 << 20


def _directory(context: ProbeContext, name: str) -> Path:
    path = context.scratch / f"{name}-{secrets.token_hex(4)}"
    path.mkdir()
    return path


class _Files:
    """The files to which :func:`apply_patches` applies the patches of the attacks."""

    def get(self, path: bytes) -> FileVersion | None:
        content = patches.FILES.get(path)
        return None if content is None else FileVersion(content)


def apply_patches(context: ProbeContext, names: Collection[str]) -> Iterable[ProbeFinding]:
    """Check that each patch is refused, either when it is applied or by the default policy on paths."""
    del context
    if _refusal(patches.HONEST):
        return [ProbeFinding.of(name, "no result: a valid patch was refused", "") for name in names]

    def attempt(name: str, attack: patches.PatchAttack) -> ProbeFinding:
        refusal = _refusal(attack.patch)
        return ProbeFinding.of(name, "" if refusal else "it was accepted", refusal)

    return findings(_PATCHES, names, lambda name, attack: _timed(partial(attempt, name, attack)))


def _refusal(patch: bytes) -> str:
    """Return why ``patch`` is refused, or an empty string if it is accepted."""
    try:
        found = violations(apply_patch(patch, _Files()), _Files(), PathPolicy())
    except PatchError as error:
        return error.message
    return f"{found[0].path}: {found[0].rule}" if found else ""


def load_packs(context: ProbeContext, names: Collection[str]) -> Iterable[ProbeFinding]:
    """Check that each pack is refused with the expected error code when it is loaded and compiled."""
    if problem := _codes(packs.PackAttack("", "honest", ""), _directory(context, "pack")):
        return [
            ProbeFinding.of(name, f"no result: a valid pack was refused ({', '.join(problem)})", "") for name in names
        ]

    def attempt(name: str, attack: packs.PackAttack) -> ProbeFinding:
        codes = _codes(attack, _directory(context, "pack"))
        problem = f"it was refused with {', '.join(codes)} instead of {attack.code}" if codes else "it was accepted"
        return ProbeFinding.of(name, "" if attack.code in codes else problem, attack.code)

    return findings(_PACKS, names, lambda name, attack: _timed(partial(attempt, name, attack)))


def _codes(attack: packs.PackAttack, directory: Path) -> list[str]:
    """Write the pack to ``directory`` and load it. Return its error codes, or an empty list if it is accepted."""
    manifest, tasks = attack.write(directory)
    try:
        compile_benchmark_pack(load_benchmark_pack(manifest, tasks))
    except ConfigError as error:
        return [problem.code for problem in error.problems]
    return []


def judge_texts(context: ProbeContext, names: Collection[str]) -> Iterable[ProbeFinding]:
    """Judge each cheating answer, after checking that the right answer to its question passes."""
    del context

    def attempt(name: str, cheat: texts.TextCheat) -> ProbeFinding:
        question = cheat.question
        verifier = _VERIFIERS[question.family]
        if not verdict(verifier, question.right, public=question.public, hidden=question.hidden).passed:
            return ProbeFinding.of(name, "no result: the right answer does not pass", "")
        result = verdict(verifier, cheat.answer, public=question.public, hidden=question.hidden)
        return ProbeFinding.of(name, "it passed" if result.passed else "", str(result.reason))

    return findings(_TEXTS, names, lambda name, cheat: _timed(partial(attempt, name, cheat)))


HOST_KINDS: Final = (
    ProbeKind("tree", "hostile trees", {name: trap.entry for name, trap in _TREES.items()}, seal_trees),
    ProbeKind("archive", "hostile archives", {name: one.entry for name, one in _ARCHIVES.items()}, unpack_archives),
    ProbeKind("patch", "hostile patches", {name: one.entry for name, one in _PATCHES.items()}, apply_patches),
    ProbeKind("pack", "hostile packs", {name: one.entry for name, one in _PACKS.items()}, load_packs),
    ProbeKind("text", "text answers that cheat", {name: one.entry for name, one in _TEXTS.items()}, judge_texts),
)
