"""``streampca plan``."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter


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
    spectrum: str = "decaying",
    row_norm: float = 1.0,
    typical_norm: float | None = None,
    all_: Annotated[bool, Parameter(name="--all", negative="")] = False,
) -> int:
    """Predict noise, error, regret, memory and time of everything that applies; recommend one.

    Reads no data and spends no budget.

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
        What one neighbour differs in: a row against the zero row, or against another row.
    window
        Follow the last so many rows instead of all.
    release_every
        Rows between releases. Chosen, if left out; n_rows means one release.
    spectrum
        Guess of the eigenvalues of the mean of a a^T, in units of row_norm**2: numbers separated by
        commas, or decaying, steep, flat, spiked.
    row_norm
        Longer rows will be scaled onto the ball of this radius.
    typical_norm
        Guess of the norm of a typical row.
    all_
        Show what serves another purpose, too.
    """
    from rich.console import Console
    from rich.table import Table

    from streampca.errors import BadParameter
    from streampca.planning import plan as make

    guess: str | list[float] = spectrum
    if not spectrum.isalpha():
        try:
            guess = [float(part) for part in spectrum.split(",")]
        except ValueError:
            raise BadParameter(f"--spectrum {spectrum}: expected a name, or numbers separated by commas") from None
    made = make(
        n_rows=n_rows, n_features=n_features, n_components=n_components, epsilon=epsilon, delta=delta,
        adjacency=adjacency, window=window, release_every=release_every, spectrum=guess, row_norm=row_norm,
        typical_norm=typical_norm,
    )  # fmt: skip
    console = Console()
    shown = [p for p in made.predictions if all_ or p.serves == made.recommended.serves]
    every = made.recommended.settings.get("release_every")
    console.print(f"Expected after {n_rows} rows" + (f", released every {every}:" if every else ":"), style="bold")
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    rows = dict(zip(made.predictions, made.table(), strict=True))
    for name in rows[shown[0]]:
        first = name == "candidate"
        table.add_column(name, justify="left" if first else "right", no_wrap=not first, min_width=22 if first else None)
    for prediction in shown:
        table.add_row(*rows[prediction].values(), style="bold" if prediction is made.recommended else None)
    console.print(table)
    console.print(f"assumed  {made.question.assumed}", highlight=False, markup=False)
    console.print(f"use      {made.recommended.code}", highlight=False, markup=False)
    console.print(f"why      {made.reason}", highlight=False, markup=False)
    for text in made.warnings:
        console.print(f"warning  {text}", style="yellow", highlight=False, markup=False)
    for text in made.advice:
        console.print(f"advice   {text}", style="dim", highlight=False, markup=False)
    for prediction in shown:
        if prediction.note:
            console.print(f"note     {prediction.label}: {prediction.note}", style="dim", highlight=False, markup=False)
    return 0
