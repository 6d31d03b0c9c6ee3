"""``streampca report``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter


def report(
    path: Path,
    /,
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"])] = Path("report.html"),
    regret: Path | None = None,
    pictures: Path | None = None,
    kind: Literal["svg", "png"] = "svg",
    force: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Write a report of a run: one HTML file that needs nothing else.

    It says what ran, what is promised in words, and shows curves, eigenvalues with error
    bars, and loadings. It is publishable unless --regret is given.

    Parameters
    ----------
    path
        releases.jsonl, or a store (run.db), or a folder with one of them.
    out
        The HTML file.
    regret
        File of the exact regret. The report is then the curator's, and marked so.
    pictures
        Folder for every picture as a file of its own; the names of the curator's begin with curator-.
    kind
        Format of those files.
    force
        Overwrite an existing report.
    """
    from streampca.errors import BadParameter
    from streampca.reports.html import report as html
    from streampca.reports.pictures import write_pictures
    from streampca.reports.run import read_run

    if out.exists() and not force:
        raise BadParameter(f"{out} exists; pass another --out, or --force to overwrite it")
    run = read_run(path, regret)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(html(run), encoding="utf-8")
    whose = "publishable:" if run.is_publishable else "curator only:"
    print(f"{whose} {out}", file=sys.stderr)
    if pictures is not None:
        count = len(write_pictures(run, pictures, kind))
        print(f"{whose} {count} pictures in {pictures}", file=sys.stderr)
    return 0
