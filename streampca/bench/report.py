"""Results as text, JSON and a picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from streampca.bench.timing import Bar, Result
from streampca.errors import BadParameter

_WORD = {True: "met", False: "missed", None: "not measured"}


def show(console: Console, result: Result, *, explain: bool) -> None:
    """Print one result: its table, its facts and its bars."""
    console.print()
    console.print(f"{result.suite}: {result.title}", highlight=False, style="bold")
    if result.timed:
        console.print(_table(result))
    for fact in result.facts:
        console.print(fact, highlight=False)
    for bar in result.bars:
        console.print(line(bar), highlight=False, soft_wrap=True)
        if bar.note and (explain or bar.value is None):
            console.print(f"        {bar.note}", highlight=False, soft_wrap=True)


def line(bar: Bar) -> str:
    """One bar beside what was measured."""
    value = "" if bar.value is None else f"{bar.value:.2f} "
    return f"  {_WORD[bar.met]:>6}: {value}(asked for: {bar.sense} {bar.bound:g})  {bar.what}"


def _table(result: Result) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for name in ("us/row", "rows/s", "spread", "ratio"):
        table.add_column(name, justify="right")
    base = result.timed[0]
    for timed in result.timed:
        table.add_row(
            timed.name, f"{timed.per_row:.3g}", f"{1e6 / timed.per_row:,.0f}".replace(",", " "),
            f"{100 * timed.spread:.0f} %", f"{timed.faster_than(base):.2f}x",
        )  # fmt: skip
    return table


def write_json(file: Path, machine: dict[str, str], results: Sequence[Result]) -> None:
    """All of it, for a machine to read."""
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"machine": machine, "results": [r.to_dict() for r in results]}, indent=1)
    file.write_text(text + "\n", encoding="utf-8")


def draw(file: Path, results: Sequence[Result]) -> None:
    """Microseconds a row of every contender, one panel a table."""
    try:
        import matplotlib
    except ImportError:
        raise BadParameter("--picture needs matplotlib; pip install 'streampca[report]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [result for result in results if result.timed]
    if not shown:
        raise BadParameter("--picture: none of these suites has a picture; add row, block, window, oja or csv")
    heights = [1.0 + 0.35 * len(result.timed) for result in shown]
    figure, axes = pyplot.subplots(
        len(shown), 1, figsize=(9, sum(heights)), height_ratios=heights, squeeze=False, layout="constrained"
    )
    for panel, result in zip(axes[:, 0], shown, strict=True):
        names, costs = [t.name for t in result.timed], [t.per_row for t in result.timed]
        colours = ["#888888"] + ["#2a6f97" if "not private" not in name else "#888888" for name in names[1:]]
        bars = panel.barh(names, costs, color=colours)
        panel.bar_label(bars, [f"{cost:.3g}" for cost in costs], padding=3)
        panel.set(xscale="log", title=f"{result.suite}: {result.title}", xlabel="us/row (less is better)")
        panel.invert_yaxis()
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=110)
    pyplot.close(figure)
