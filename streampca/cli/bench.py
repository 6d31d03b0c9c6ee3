"""``streampca bench``."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

Suite = Literal["row", "wide", "block", "window", "oja", "csv", "scale"]
ALL: tuple[Suite, ...] = ("row", "wide", "block", "window", "oja", "csv", "scale")


def bench(
    *suites: Suite,
    suite: Annotated[list[Suite] | None, Parameter(consume_multiple=True, negative="")] = None,
    rounds: int = 5,
    small: Annotated[bool, Parameter(negative="")] = False,
    full: Annotated[bool, Parameter(negative="")] = False,
    json: Path | None = None,
    picture: Path | None = None,
    explain: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Measure speed beside others, interleaved in one process, and what was asked for beside what was measured.

    Times are CPU seconds of one thread (of csv, elapsed ones too). Read the ratios: the machine may be
    busy. Peers that are not installed are left out (pip install 'streampca[bench]'; pip install proSVD).

    Parameters
    ----------
    suites
        row, wide (d = 500), block, window, oja, csv, scale. All of them, if left out: some five minutes.
    suite
        The same, as an option.
    rounds
        Interleaved rounds; medians count.
    small
        Small sizes: to see that it works, in seconds. The figures mean little.
    full
        Full sizes for block, csv and scale: 10**6 rows, and 10**7 for memory.
    json
        Write everything measured to this file.
    picture
        Draw the times a row into this file (.png, .svg, .pdf).
    explain
        Say beside each bar where the time goes.
    """
    from rich.console import Console
    from threadpoolctl import threadpool_limits

    from streampca.bench import report
    from streampca.bench.machine import describe
    from streampca.bench.timing import Result
    from streampca.errors import BadParameter

    if rounds < 1:
        raise BadParameter(f"--rounds={rounds} must be at least 1")
    if small and full:
        raise BadParameter("--small and --full: leave one of them out")
    console = Console()
    results: list[Result] = []
    with threadpool_limits(1):
        machine = describe()
        for line in machine.values():
            console.print(line, highlight=False)
        for name in dict.fromkeys([*suites, *(suite or ())]) or dict.fromkeys(ALL):
            for result in _suite(name, small, full)(rounds):
                report.show(console, result, explain=explain)
                results.append(result)
    if json is not None:
        report.write_json(json, machine, results)
    if picture is not None:
        report.draw(picture, results)
    bars = [bar for result in results for bar in result.bars]
    met, missed = sum(bar.met is True for bar in bars), sum(bar.met is False for bar in bars)
    console.print(f"\n{met} met, {missed} missed, {len(bars) - met - missed} not measured", highlight=False)
    return 0


def _suite(name: Suite, small: bool, full: bool) -> Callable[[int], list]:  # type: ignore[type-arg]
    """The suite of a name at a size: what to call with the number of rounds."""
    million = 1_000_000 if full else None
    if name == "row":
        from streampca.bench.row_suite import run_row

        return lambda rounds: run_row(rounds, small=small)
    if name == "wide":
        from streampca.bench.wide_suite import run_wide

        return lambda rounds: run_wide(rounds, small=small)
    if name == "block":
        from streampca.bench.block_suite import run_block

        return lambda rounds: run_block(rounds, small=small, rows=million)
    if name == "window":
        from streampca.bench.window_suite import run_window

        return lambda rounds: run_window(rounds, small=small)
    if name == "oja":
        from streampca.bench.oja_suite import run_oja

        return lambda rounds: run_oja(rounds, small=small)
    if name == "csv":
        from streampca.bench.csv_suite import run_csv

        return lambda rounds: run_csv(rounds, run_file=_run_file, small=small, rows=million)
    from streampca.bench.scale_suite import run_scale

    return lambda rounds: run_scale(rounds, small=small, memory_rows=10_000_000 if full else None)


def _run_file(file: Path) -> None:
    """``streampca run`` on a file, quietly."""
    from streampca.cli.run import Options, Outputs, run

    common = {"n_components": 5, "epsilon": 1.0, "delta": 1e-6}
    options = Options(
        processor="fpl", common=common, release_every=1000, extra=(), columns=None, bounds=None, row_norm=1.0,
        on_bad_row="raise", center=False, seed=None,
    )  # fmt: skip
    with contextlib.redirect_stderr(io.StringIO()):
        run(file, options=options, outputs=Outputs(file.with_name("releases.jsonl"), force=True), live=False)
