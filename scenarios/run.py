"""Run a scenario, or list them: ``python scenarios/run.py [NAME] [--rows N]``."""

from __future__ import annotations

import sys

from cyclopts import App
from rich.console import Console
from rich.progress import Progress, TimeElapsedColumn
from rich.table import Table
from rich.text import Text
from scenario import Measures, Result, load, names, number, run_scenario

from streampca.errors import StreamPCAError

app = App(help_format="plaintext", result_action="return_value")


@app.default
def main(name: str | None = None, /, *, rows: int | None = None) -> int:
    """Run a scenario; exit with 1 if an expectation fails. Without a name, list the scenarios.

    Parameters
    ----------
    name
        Name of a scenario, or the path of a TOML file.
    rows
        Number of rows instead of the scenario's own.
    """
    out = Console(highlight=False, markup=False)
    try:
        if name is None:
            table = Table("name", "title", box=None, pad_edge=False)
            table.add_column("rows", justify="right")
            for one in names():
                found = load(one)
                table.add_row(one, found.title, f"{found.rows:,}".replace(",", " "))
            out.print(table)
            return 0
        chosen = load(name)
        out.print(Text(chosen.title, "bold"))
        out.print(Text(" ".join(chosen.shows.split())))
        with Progress(
            *Progress.get_default_columns(), TimeElapsedColumn(), console=Console(stderr=True), transient=True
        ) as bar:
            tasks = {run: bar.add_task(run, total=rows or chosen.rows) for run in chosen.runs}
            result = run_scenario(
                chosen, rows, progress=lambda run, done, total: bar.update(tasks[run], completed=done, total=total)
            )
    except StreamPCAError as error:
        print(error, file=sys.stderr)
        return 2
    out.print("", _measures(result.final), "", _checks(result), sep="\n")
    failed = [check for check in result.checks if not check.holds]
    for check in failed:
        if check.expect.why:
            out.print(Text(f"{check.what}: {check.expect.why}"))
    verdict = f"{len(failed)} of {len(result.checks)} do not hold" if failed else f"all {len(result.checks)} hold"
    out.print(f"\n{name}: {verdict} ({result.rows} rows, {result.seconds:.1f} s)", soft_wrap=True)
    return 1 if failed else 0


def _measures(final: Measures) -> Table:
    table = Table(title="measured at the end", title_justify="left", box=None, pad_edge=False)
    if len(final) > 6:  # too many for columns of their own
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
    table = Table("", "what", "measured", "wanted", title="expected", title_justify="left", box=None, pad_edge=False)
    table.columns[1].no_wrap = True
    for check in result.checks:
        mark = Text("holds", "green") if check.holds else Text("FAILS", "bold red")
        table.add_row(mark, check.what, check.measured, check.wanted)
    return table


if __name__ == "__main__":
    sys.exit(app())
