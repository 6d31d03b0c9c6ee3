"""``streampca plan``."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

from cyclopts import Parameter
from rich.table import Table

from streampca import planning
from streampca.cli.algorithms import command_of
from streampca.cli.terminal import console
from streampca.errors import BadParameterError


def plan(
    *,
    n_rows: int,
    n_features: Annotated[int, Parameter(name=["--n-features", "-d"])],
    n_components: Annotated[int, Parameter(name=["--n-components", "-k"])],
    epsilon: float,
    delta: float,
    adjacency: Literal["zero-out", "replace"] = "zero-out",
    window: int | None = None,
    release_every: int | None = None,
    center: bool = True,
    spectrum: str = "decaying",
    row_norm: float = 1.0,
    typical_norm: float | None = None,
    all_: Annotated[bool, Parameter(name="--all", negative="")] = False,
) -> int:
    """Predict noise, error and regret; recommend an algorithm.

    Covers every algorithm that applies, with its memory. Reads no data
    and spends no budget.

    Parameters
    ----------
    n_rows
        Number of rows to come.
    n_features
        Number of features.
    n_components
        Dimension of the subspace.
    epsilon
        Privacy parameter of all releases together.
    delta
        Privacy parameter, well below one over the number of rows, e.g. 1e-6.
    adjacency
        Neighbors differ in one row: in place of the zero row (zero-out), or of another row (replace).
    window
        Number of the most recent rows to follow; all by default.
    release_every
        Rows between releases; chosen by default. n_rows means one release.
    center
        Plan for a subtracted mean where it is possible, the default of run and release; --no-center: as in the papers.
    spectrum
        Guess of the eigenvalues of the mean of a a^T, about the mean if centered, in units of row_norm**2:
        numbers separated by commas, or decaying, steep, flat, spiked.
    row_norm
        Longer rows will be scaled onto the ball of this radius.
    typical_norm
        Guess of the norm of a typical row.
    all_
        Show algorithms for other purposes, too.
    """
    guess: str | list[float] = spectrum
    if not spectrum.isalpha():
        try:
            guess = [float(part) for part in spectrum.split(",")]
        except ValueError:
            raise BadParameterError(f"--spectrum {spectrum}: expected a name, or numbers separated by commas") from None
    plan = planning.plan(
        n_rows=n_rows, n_features=n_features, n_components=n_components, epsilon=epsilon, delta=delta,
        adjacency=adjacency, window=window, release_every=release_every, center=center, spectrum=guess,
        row_norm=row_norm, typical_norm=typical_norm,
    )  # fmt: skip
    out = console(sys.stdout)
    shown = [p for p in plan.predictions if all_ or p.serves == plan.recommended.serves]
    every = plan.recommended.settings.get("release_every")
    out.print(f"Expected after {n_rows} rows" + (f", released every {every}:" if every else ":"), style="bold")
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    rows = dict(zip(plan.predictions, plan.table(), strict=True))
    for name in rows[shown[0]]:
        if name == "candidate":
            table.add_column(name, min_width=22)
        else:
            table.add_column(name, justify="right", no_wrap=True)
    for prediction in shown:
        table.add_row(*rows[prediction].values(), style="bold" if prediction is plan.recommended else None)
    out.print(table)
    for name, texts, style in (
        ("assumed", [plan.question.assumed], None),
        ("use", [plan.recommended.code], None),
        ("run", [command_of(plan.algorithm, row_norm=row_norm)], None),
        ("why", [plan.reason], None),
        ("warning", plan.warnings, "yellow"),
        ("advice", plan.advice, "dim"),
        ("note", [f"{p.label}: {p.note}" for p in shown if p.note], "dim"),
    ):
        for text in texts:
            out.print(f"{name:<8} {text}", style=style)
    return 0
