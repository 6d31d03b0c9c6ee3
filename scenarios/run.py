"""Run a scenario, or list them: ``python scenarios/run.py [NAME] [--rows N]``."""

import sys
from functools import partial

from cyclopts import App
from rich.console import Console
from rich.progress import Progress, TimeElapsedColumn
from rich.table import Table
from scenario import load, names, number, run_scenario

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
    out, table = Console(highlight=False, markup=False), partial(Table, box=None, pad_edge=False)
    try:
        if name is None:
            listed = table("name", "title", "rows")
            for one in names():
                listed.add_row(one, load(one).title, f"{load(one).rows:,}".replace(",", " "))
            out.print(listed)
            return 0
        chosen = load(name)
        out.print(chosen.title, style="bold")
        out.print(" ".join(chosen.shows.split()))
        columns = *Progress.get_default_columns(), TimeElapsedColumn()
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            tasks = {run: bar.add_task(run, total=rows or chosen.rows) for run in chosen.runs}
            result = run_scenario(
                chosen, rows, progress=lambda run, done, total: bar.update(tasks[run], completed=done, total=total)
            )
    except StreamPCAError as error:
        print(error, file=sys.stderr)
        return 2
    measured, expected = table("run", "measured at the end"), table("", "expected", "measured", "wanted")
    for run, values in result.final.items():
        measured.add_row(run, ", ".join(f"{measure} {number(value)}" for measure, value in values.items()))
    for check in result.checks:
        style = None if check.holds else "bold red"
        expected.add_row("holds" if check.holds else "FAILS", check.what, check.measured, check.wanted, style=style)
    out.print("", measured, "", expected, sep="\n")
    failed = [check for check in result.checks if not check.holds]
    for check in failed:
        if check.expect.why:
            out.print(f"{check.what}: {check.expect.why}")
    verdict = f"{len(failed)} of {len(result.checks)} do not hold" if failed else f"all {len(result.checks)} hold"
    out.print(f"\n{name}: {verdict} ({result.rows} rows, {result.seconds:.1f} s)", soft_wrap=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(app())
