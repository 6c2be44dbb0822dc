"""``securebench view``: show runs in a browser."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(name="view")
@click.argument("directories", metavar="DIR...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Listen on this port.  [default: a free port]")
@click.option("--no-browser", is_flag=True, help="Do not open a browser, only print the address.")
def command(directories: tuple[Path, ...], port: int, *, no_browser: bool) -> None:
    """Show one or more runs in a browser, including runs in progress.

    DIR is the directory of a run or a suite. The server listens on 127.0.0.1 only and changes nothing. Ctrl-C ends it.
    """
    from securebench.report.extras import require

    require("view")
    from securebench.report.server import serve

    def notify(address: str) -> None:
        click.echo(f"Open {address}")
        click.echo("Ctrl-C ends the server.", err=True)

    try:
        serve(directories, port=port, browser=not no_browser, notify=notify)
    except KeyboardInterrupt:
        click.echo("stopped", err=True)
