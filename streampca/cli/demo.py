"""``streampca demo``: live regret of private PCA on real flights, with a summary and a picture. Curator only."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import numpy as np

from streampca.cli.files import Files
from streampca.cli.live import view
from streampca.cli.options import LIVE, about
from streampca.cli.session import Session
from streampca.errors import UsageError
from streampca.processors.private_fpl import PrivateFPL
from streampca.regret.regret import RegretLog
from streampca.sources import flights
from streampca.stream.stream import Stream
from streampca.views.plots import curves

_COMPONENTS, _REGRET_EVERY = 3, 250


def demo(
    *,
    out: Annotated[Path, about("Folder for the files.")] = Path("out/demo"),
    rows: Annotated[int | None, about("Number of rows to use; all by default.")] = None,
    live: Annotated[bool | None, about(LIVE)] = None,
) -> int:
    """Show private PCA of 336 776 real flights, live, with its regret.

    The components are about the private mean. Takes about a minute. Writes
    summary.md, releases.jsonl, regret.csv and a picture of the regret curve, in
    place of those of an earlier demo.
    """
    if rows is not None and not 1 <= rows <= flights.N_ROWS:
        raise UsageError(f"--rows {rows} must be between 1 and {flights.N_ROWS}")
    total = rows or flights.N_ROWS
    source = flights.rows()
    algorithm = PrivateFPL(n_components=_COMPONENTS, epsilon=1.0, delta=1e-7, horizon=total, release_every=1)
    out.mkdir(parents=True, exist_ok=True)
    stream = Stream(algorithm, bounds=source.bounds, regret=RegretLog(every=_REGRET_EVERY))
    files = Files(
        out / "releases.jsonl", keep_every=1000, regret=out / "regret.csv", summary=out / "summary.md", force=True
    )  # fmt: skip
    title = f"streampca demo · New York's flights of 2013 · private PCA after every row, k = {_COMPONENTS}"
    shown = view(live, title, stream.guarantee, total)
    session = Session(
        stream, source, files, [shown], limit=total, every=_REGRET_EVERY, followed=True, name="flights"
    ).run()  # fmt: skip
    print("", *session.conclude(title), sep="\n", file=sys.stderr)
    if session.problem is None and session.card() is not None:
        records = [*stream.regret.history, stream.regret.now()]
        data = {
            "t": np.array([r.t for r in records]), "opt": np.array([r.per_row(r.opt) for r in records]),
            "average": np.array([r.average for r in records]),
        }  # fmt: skip
        try:
            figure = curves(
                data, (("average", "regret per row"), ("opt", "OPT per row, for scale")), log=True,
                title=f"Private PCA of {stream.t} flights, a release after every row",
                unit="per row, in units of squared row norm", mark="curator only: exact functions of raw rows",
            )  # fmt: skip
        except ImportError:
            print("no picture of the regret: pip install 'streampca[report]'", file=sys.stderr)
        else:
            figure.axes[0].set_xscale("log")
            picture = out / "regret.png"
            picture.touch(mode=0o600)
            figure.savefig(picture, dpi=150)
            print(f"curator only: {picture}", file=sys.stderr)
    return session.exit_code()
