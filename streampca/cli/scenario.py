"""``streampca scenario list`` and ``streampca scenario run``."""

from __future__ import annotations

from rich.console import Console
from rich.progress import Progress, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from streampca.cli import FAILED
from streampca.scenarios import Result, load, names, run_scenario
from streampca.scenarios.checks import number


def list_() -> int:
    """Print name, title and size of every scenario."""
    table = Table(box=None, pad_edge=False)
    for name in ("name", "title"):
        table.add_column(name)
    table.add_column("rows", justify="right")
    for name in names():
        scenario = load(name)
        table.add_row(name, scenario.title, f"{scenario.rows:,}".replace(",", " "))
    Console().print(table)
    return 0


def run(name: str, rows: int | None) -> int:
    """Run a scenario and print what it expects beside what was measured; 1 if something does not hold."""
    scenario = load(name)
    console = Console()
    console.print(Text(scenario.title, "bold"))
    console.print(Text(" ".join(scenario.shows.split())))
    with Progress(
        *Progress.get_default_columns(), TimeElapsedColumn(), console=Console(stderr=True), transient=True
    ) as bar:
        tasks = {run: bar.add_task(run, total=rows or scenario.rows) for run in scenario.runs}
        result = run_scenario(
            scenario, rows, progress=lambda run, done, total: bar.update(tasks[run], completed=done, total=total)
        )
    for table in (_measures(result), _checks(result)):
        console.print()
        console.print(table)
    failed = [check for check in result.checks if not check.holds]
    for check in failed:
        if check.expect.why:
            console.print(Text(f"{check.what}: {check.expect.why}"))
    verdict = f"{len(failed)} of {len(result.checks)} do not hold" if failed else f"all {len(result.checks)} hold"
    console.print(f"\n{name}: {verdict} ({result.rows} rows, {result.seconds:.1f} s)", highlight=False, soft_wrap=True)
    return FAILED if failed else 0


#: More runs than this are listed, not tabled.
_COLUMNS = 6


def _measures(result: Result) -> Table:
    final = result.final
    table = Table(title="measured at the end", title_justify="left", box=None, pad_edge=False)
    if len(final) > _COLUMNS:
        table.add_column("run")
        table.add_column("measures")
        for run, values in final.items():
            table.add_row(run, ", ".join(f"{measure} {number(value)}" for measure, value in values.items()))
        return table
    table.add_column("measure")
    for run in final:
        table.add_column(run, justify="right")
    for measure in dict.fromkeys(m for values in final.values() for m in values):
        table.add_row(measure, *(number(v[measure]) if measure in v else "" for v in final.values()))
    return table


def _checks(result: Result) -> Table:
    table = Table(title="expected", title_justify="left", box=None, pad_edge=False)
    table.add_column()
    table.add_column("what", no_wrap=True)
    table.add_column("measured")
    table.add_column("wanted")
    for check in result.checks:
        mark = Text("holds", "green") if check.holds else Text("FAILS", "bold red")
        table.add_row(mark, check.what, check.measured, check.wanted)
    return table
