"""``streampca demo``: live regret of private PCA on real flights, with a summary and a picture. Curator only."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from streampca.cli.files import Files
from streampca.cli.live import view
from streampca.cli.session import Session, card_of, closing, write_summary
from streampca.cli.terminal import terminal_width
from streampca.errors import BadParameterError
from streampca.processors.private_fpl import PrivateFPL
from streampca.regret.regret import RegretLog, RegretRecord
from streampca.sources import flights
from streampca.stream.stream import Stream
from streampca.views.card import learned
from streampca.views.plots import curves, encoded

COMPONENTS, EPSILON, DELTA = 3, 1.0, 1e-6
KEEP_EVERY = 1000
REGRET_EVERY = 250
_CURATOR = "curator only: exact functions of raw rows"


def demo(*, out: Path = Path("out/demo"), rows: int | None = None, live: bool | None = None) -> int:
    """Show private PCA of 336 776 real flights, live, with its regret.

    The components are about the private mean, as analysts take them. Takes about a
    minute. Writes summary.md, releases.jsonl, regret.csv and a picture of the regret
    curve, in place of those of an earlier demo.

    Parameters
    ----------
    out
        Folder for the files.
    rows
        Number of rows to use; all by default.
    live
        Live view in the terminal. On by default, where standard error is one.
    """
    if rows is not None and not 1 <= rows <= flights.N_ROWS:
        raise BadParameterError(f"--rows {rows} must be between 1 and {flights.N_ROWS}")
    total = rows or flights.N_ROWS
    source = flights.rows()
    algorithm = PrivateFPL(n_components=COMPONENTS, epsilon=EPSILON, delta=DELTA, horizon=total, center=True)
    stream = Stream(algorithm, on_bad_row="zero", regret=RegretLog(every=REGRET_EVERY))
    files = Files(
        out / "releases.jsonl", keep_every=KEEP_EVERY, regret=out / "regret.csv", summary=out / "summary.md", force=True
    )  # fmt: skip
    title = f"streampca demo · New York's flights of 2013 · private PCA after every row, k = {COMPONENTS}"
    shown = view(live, title, stream.guarantee, COMPONENTS, total)
    ending = Session(stream, source, files, [shown], limit=total, every=REGRET_EVERY, followed=True).run()
    write_summary(title, ending, files)
    print("", *closing(ending, stream, files), sep="\n", file=sys.stderr)
    made = card_of(ending)
    if ending.problem is None and made is not None:
        print("", *textwrap.wrap(learned(made), terminal_width()), sep="\n", file=sys.stderr)
        picture, records = out / "regret.png", [*stream.regret.history, stream.regret.now()]
        drawn = draw(picture, records, f"Private PCA of {stream.t} flights, a release after every row")
        no_picture = "no picture of the regret: pip install 'streampca[report]'"
        print(f"curator only: {picture}" if drawn else no_picture, file=sys.stderr)
    return ending.exit_code()


def draw(path: Path, records: Sequence[RegretRecord], title: str) -> bool:
    """Draw the regret curve as PNG; return False if matplotlib is not installed."""
    opt, average = [r.opt / r.t for r in records], [r.average for r in records]
    data = {"t": np.array([r.t for r in records]), "opt": np.array(opt), "average": np.array(average)}
    lines = (("average", "regret per row"), ("opt", "OPT per row, for scale"))
    try:
        figure = curves(data, lines, log=True, title=title, unit="per row, in units of squared row norm", mark=_CURATOR)
    except ImportError:
        return False
    figure.axes[0].set_xscale("log")
    path.touch(mode=0o600)
    path.write_bytes(encoded(figure, "png"))
    return True
