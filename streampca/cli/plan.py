"""``streampca plan``."""

from __future__ import annotations

import sys
from typing import Annotated

from rich.table import Table

from streampca import planning
from streampca.cli.algorithms import command_of
from streampca.cli.messages import console
from streampca.cli.options import DELTA_HELP, NEIGHBORS, about
from streampca.errors import UsageError
from streampca.privacy.budget import DELTA, Adjacency


def plan(
    *,
    n_rows: Annotated[int, about("Number of rows to come.", "--n-rows", "-n")],
    n_features: Annotated[int, about("Number of features.", "--n-features", "-d")],
    n_components: Annotated[int, about("Dimension of the subspace.", "--n-components", "-k")],
    epsilon: Annotated[float, about("Privacy parameter of all releases together.")],
    delta: Annotated[float, about(DELTA_HELP)] = DELTA,
    adjacency: Annotated[Adjacency, about(NEIGHBORS)] = "zero-out",
    window: Annotated[int | None, about("Number of the most recent rows to follow; all by default.")] = None,
    release_every: Annotated[
        int | None, about("Rows between releases; chosen by default. n_rows means one release.")
    ] = None,
    center: Annotated[
        bool, about("Subtract a mean where it is possible, as run and pca do; --no-center: as in the papers.")
    ] = True,
    spectrum: Annotated[
        str | None,
        about(
            "Guess of the eigenvalues of the mean of a a^T, about the mean if centered, in units of row_norm**2: "
            "numbers separated by commas, or decaying, steep, flat, spiked. By default, several are tried."
        ),
    ] = None,
    row_norm: Annotated[float, about("Longer rows will be scaled onto the ball of this radius.")] = 1.0,
    typical_norm: Annotated[float | None, about("Guess of the norm of a typical row.")] = None,
    rows_per_person: Annotated[
        float | None, about("Guess of the mean number of rows of a person, to protect people instead of rows.")
    ] = None,
    all_: Annotated[bool, about("Show algorithms for other purposes, too.", "--all", negative="")] = False,
) -> int:
    """Predict noise, captured variance and regret; recommend an algorithm.

    Covers every algorithm that applies. Reads no data and spends no budget.
    """
    # Names of spectra have letters only, and no list of numbers is so.
    guess: str | list[float] | None = spectrum
    if spectrum is not None and not spectrum.isalpha():
        try:
            guess = [float(part) for part in spectrum.split(",")]
        except ValueError:
            raise UsageError(f"--spectrum {spectrum}: expected a name, or numbers separated by commas") from None
    plan = planning.plan(
        n_rows=n_rows, n_features=n_features, n_components=n_components, epsilon=epsilon, delta=delta,
        adjacency=adjacency, window=window, release_every=release_every, center=center, spectrum=guess,
        row_norm=row_norm, typical_norm=typical_norm, rows_per_person=rows_per_person,
    )  # fmt: skip
    out = console(sys.stdout)
    shown = [p for p in plan.predictions if all_ or p.serves in (plan.best.serves, plan.question.purpose)]
    every = plan.best.settings.get("release_every")
    out.print(f"Expected after {n_rows} rows" + (f", released every {every}:" if every else ":"), style="bold")
    rows = plan.to_frame()
    table = Table("candidate", box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.columns[0].min_width = 22
    for name in rows.columns[1:]:
        table.add_column(name, justify="right", no_wrap=True)
    for prediction, row in zip(plan.predictions, rows.itertuples(index=False), strict=True):
        if prediction in shown:
            table.add_row(*row, style="bold" if prediction is plan.best else None)
    out.print(table)
    notes, styles = plan.notes(), {"warning": "yellow", "advice": "dim", "note": "dim"}
    notes.insert(2, ("run", f"{command_of(plan.algorithm, row_norm=row_norm)} --columns NAMES"))
    for name, text in [*notes, *(("note", f"{p.label}: {p.note}") for p in shown if p.note)]:
        out.print(f"{name:<8} {text}", style=styles.get(name))
    return 0
