"""Speed beside other libraries: ``python scenarios/bench.py [SUITE ...]``, see ``--help``."""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path
from typing import Literal, get_args

from benchmark import report
from benchmark.cases import run_suite
from benchmark.profile import profile
from benchmark.timing import Result
from cyclopts import App
from rich.console import Console
from threadpoolctl import threadpool_limits

from streampca.cli.options import RunOptions
from streampca.cli.run import run

Suite = Literal["row", "block", "window", "oja", "csv", "scale"]
app = App(help_format="plaintext", result_action="return_value")


@app.default
def main(
    *suites: Suite,
    rounds: int = 5,
    small: bool = False,
    full: bool = False,
    json: Path | None = None,
    markdown: Path | None = None,
    explain: bool = False,
) -> int:
    """Measure speed beside other libraries.

    All are interleaved in one process; required figures are printed beside the
    measured ones. Times are CPU seconds of one thread (of csv, elapsed ones too).
    Read the ratios: the machine may be busy. Peers that are not installed are
    omitted (pip install scikit-learn proSVD).

    Parameters
    ----------
    suites
        row (warm and cold), block, window, oja, csv, scale. Default: all of them, about five minutes.
    rounds
        Interleaved rounds; medians count.
    small
        Small sizes: to see that it works, in seconds. The figures mean little.
    full
        Full sizes for csv and scale: 10**6 rows, and 10**7 for memory.
    json
        Write everything measured to this file.
    markdown
        Write the tables, and the profile of a row, to this file.
    explain
        Say beside each bar where the time goes.
    """
    if rounds < 1 or (small and full):
        fault = f"--rounds={rounds} must be at least 1" if rounds < 1 else "--small and --full exclude each other"
        print(fault, file=sys.stderr)
        return 2
    out = Console(highlight=False, markup=False)
    results: list[Result] = []
    with threadpool_limits(1):
        machine = report.describe()
        for line in machine.values():
            out.print(line)
        for name in dict.fromkeys(suites or get_args(Suite)):
            for result in run_suite(name, rounds, small=small, full=full, run_file=_run_file):
                report.show(out, result, explain=explain)
                results.append(result)
    if json is not None:
        report.write_json(json, machine, results)
    if markdown is not None:
        lines = "" if small else profile(20, compiled=True)
        report.write_markdown(markdown, machine, results, lines)
    bars = [bar for result in results for bar in result.bars]
    met, missed = sum(bar.met is True for bar in bars), sum(bar.met is False for bar in bars)
    out.print(f"\n{met} met, {missed} missed, {len(bars) - met - missed} not measured")
    return 0


def _run_file(file: Path) -> None:
    """Do ``streampca run`` on a file, without its messages."""
    out = file.with_name("releases.jsonl")
    with contextlib.redirect_stderr(io.StringIO()):
        options = RunOptions(
            n_components=5, epsilon=1.0, delta=1e-6, release_every=1000, row_norm=1.0, out=out, force=True, live=False
        )
        run(file, options=options)


if __name__ == "__main__":
    sys.exit(app())
