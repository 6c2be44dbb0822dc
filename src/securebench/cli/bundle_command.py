"""``securebench bundle``: pack a run into one file."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, cast

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

_LEVEL: Final = 10
"""Compression level of Zstandard: records shrink to a tenth at about 50 MB per second. Higher levels save little."""

EXAMPLES: Final = """\b
Examples:
  securebench bundle results -o results.tar.zst
  tar -xf results.tar.zst
"""


@click.command(name="bundle", short_help="Pack a run into one file for sharing.", epilog=EXAMPLES)
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="FILE",
    help="The file to write. Its name must end with .tar.zst, or with .tar for no compression.",
)
def command(directory: Path, output: Path) -> None:
    """Pack the run or the suite in DIR into one file for sharing.

    The bundle has what a reader needs: the description of the run, its records, candidates, trajectories and egress
    log, and its signature. It has no workspaces and no commitment key. Two bundles of the same run are identical.

    Exit codes: 0 written; 1 not written, for example because DIR has no run, or because a run is in progress there.
    """
    from securebench.cli.export_command import replaced_output
    from securebench.plurals import counted
    from securebench.printable import printable_line
    from securebench.results.bundle import write_bundle

    if not output.name.endswith((".tar", ".tar.zst")):
        raise click.BadParameter("the name must end with .tar.zst or .tar", param_hint="--output")
    with replaced_output(output) as path:
        with path.open("xb") as file, _compressed(file, is_plain=output.suffix == ".tar") as archive:
            bundled = write_bundle(directory, archive)
        with path.open("rb") as written:
            digest = hashlib.file_digest(written, "sha256").hexdigest()
        size = path.stat().st_size
    runs, candidates = counted(bundled.runs, "run"), counted(bundled.candidates, "candidate")
    click.echo(f"Bundle: {printable_line(str(output))} ({runs}, {candidates}, {size} bytes)")
    click.echo(f"sha256: {digest}")


@contextmanager
def _compressed(file: IO[bytes], *, is_plain: bool) -> Iterator[IO[bytes]]:
    """Yield a file that compresses into ``file``, or ``file`` itself if ``is_plain``.

    It compresses in one thread, so that the same content gives the same bytes.
    """
    from securebench.fs.zstd import zstd

    if is_plain:
        yield file
        return
    parameter = zstd.CompressionParameter
    options: dict[int, int] = {parameter.compression_level: _LEVEL, parameter.checksum_flag: 1}
    with zstd.ZstdFile(file, "wb", options=options) as archive:
        yield cast("IO[bytes]", archive)
