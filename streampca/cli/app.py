"""The commands and their options. Bodies import what they need, so that ``--help`` is fast."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from streampca import __version__

app = App(
    name="streampca",
    help="Differentially private PCA of a stream: a subspace that is safe to publish after every row, and live regret.",
    version=__version__,
    help_format="plaintext",
    suppress_keyboard_interrupt=False,
)
scenario = App(
    name="scenario", help="Stories with what must hold in them: list them, run one.", help_format="plaintext"
)
app.command(scenario)


@app.command
def run(
    file: Path,
    /,
    *,
    n_components: Annotated[int, Parameter(name=["--n-components", "-k"])],
    epsilon: float | None = None,
    delta: float | None = None,
    columns: str | None = None,
    bounds: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    row_norm: float = 1.0,
    on_bad_row: Literal["raise", "zero"] = "raise",
    center: Annotated[bool, Parameter(negative="")] = False,
    processor: str = "fpl",
    horizon: int | None = None,
    window: int | None = None,
    release_every: int | None = None,
    adjacency: Literal["zero-out", "replace"] | None = None,
    noise: str | None = None,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative="")] = None,
    out: Annotated[Path, Parameter(allow_leading_hyphen=True)] = Path("releases.jsonl"),
    gram: bool = True,
    keep_every: int = 1,
    regret: Path | None = None,
    regret_every: int = 1000,
    private_regret: Path | None = None,
    live: bool | None = None,
    seed: int | None = None,
    store: Path | None = None,
    passphrase_file: Path | None = None,
    witness: Path | None = None,
    commit_every: str | None = None,
    ledger: Path | None = None,
    data_set: str | None = None,
    force: Annotated[bool, Parameter(negative="")] = False,
    serve: Annotated[bool, Parameter(negative="")] = False,
    public: Annotated[bool, Parameter(negative="")] = False,
    port: int = 8765,
) -> int:
    """Stream the rows of a CSV or Parquet file; write private releases, one a line.

    Ends with exit code 130 and complete files on Ctrl-C. Every run with fresh
    noise on the same rows spends the budget once more.

    Parameters
    ----------
    file
        CSV (also .gz, .zip) or Parquet file of numeric columns.
    n_components
        Dimension of the subspace.
    epsilon
        Privacy parameter of all releases together.
    delta
        Privacy parameter, well below one over the number of rows, e.g. 1e-6.
    columns
        Names of the columns to use, separated by commas. All, if left out.
    bounds
        Public ranges of the columns: lo:hi for all, name=lo:hi,... or a JSON file {"name": [lo, hi]}.
    row_norm
        Longer rows are scaled onto the ball of this radius.
    on_bad_row
        Stop at a row with missing or bad values, or absorb a zero row in its place.
    center
        Take the mean out, from the same private release. No regret is kept then.
    processor
        Algorithm: fpl (private follow the perturbed leader), window, private-oja, dp-pca, or a class name.
    horizon
        Number of rows the noise is calibrated for. Unknown, if left out: costs a little more noise.
    window
        Number of the most recent rows that count, for algorithms of sliding windows.
    release_every
        Rows between releases; 100 if left out. Rarer releases carry less noise.
    adjacency
        What one neighbour differs in: a row against the zero row, or against another row.
    noise
        Noise of the running sums: blt (least), tree (the paper's).
    set_
        Further parameter of the algorithm, as name=value.
    out
        File of the releases, or - for standard output. Publishable.
    gram
        Write the private Gram matrix with each release, not only its subspace.
    keep_every
        Write one in so many releases.
    regret
        File for the exact regret. Curator only: it has no privacy at all.
    regret_every
        Rows between lines of the regret files.
    private_regret
        File for the regret as intervals. Publishable: rewards are released with noise, too, and all releases
        carry 11.8 % more of it.
    live
        Live view in the terminal. On by default, where standard error is one.
    seed
        Reproducible noise. For tests: not private against whoever knows the seed.
    store
        Database that makes the run durable: continue it with streampca resume. Curator only.
    passphrase_file
        File with a passphrase that protects the key of the store.
    witness
        With --store: where to note how far the run has come, best on other storage. Beside the database, if left out.
    commit_every
        With --store: time or rows between commits, such as 50ms or 1000; 200ms if left out.
    ledger
        Ledger whose account of --data-set pays for the run, or refuses it. See streampca ledger budget.
    data_set
        Name of the data set in the ledger.
    force
        Overwrite existing output files.
    serve
        Show the run as a page in the browser, on this machine only, until Ctrl-C. Curator only, behind a token.
    public
        With --serve: show what may be published, and nothing else.
    port
        Port of the page; 0 takes any.
    """
    from streampca.cli.run import Options, Outputs
    from streampca.cli.run import run as command

    page = None
    if serve:
        from streampca.cli.page import Page

        page = Page(public=public, port=port)
    elif public:
        from streampca.errors import BadParameter

        raise BadParameter("--public goes with --serve; without it, --out is the file that may be published")

    return command(
        file,
        options=Options(
            processor=processor,
            common={
                "n_components": n_components,
                "epsilon": epsilon,
                "delta": delta,
                "horizon": horizon,
                "window": window,
                "adjacency": adjacency,
                "noise": noise,
                "publish_regret": None if private_regret is None else True,
            },
            release_every=release_every,
            extra=tuple(set_ or ()),
            columns=columns,
            bounds=bounds,
            row_norm=row_norm,
            on_bad_row=on_bad_row,
            center=center,
            seed=seed,
            store=store,
            passphrase_file=passphrase_file,
            witness=witness,
            commit_every=commit_every,
            ledger=ledger,
            data_set=data_set,
        ),
        outputs=Outputs(out, gram, keep_every, regret, regret_every, private_regret, force),
        live=live,
        page=page,
    )


@app.command
def demo(*, out: Path = Path("out/demo"), rows: int | None = None, live: bool | None = None) -> int:
    """Live regret of private PCA on 336 776 real flights, with a written summary.

    Takes about a minute. Writes summary.md, releases.jsonl, regret.csv and a
    picture of the regret curve, in place of those of an earlier demo.

    Parameters
    ----------
    out
        Folder for the files.
    rows
        Use only so many rows.
    live
        Live view in the terminal. On by default, where standard error is one.
    """
    from streampca.cli.demo import demo as command

    return command(out, rows, live)


@scenario.command(name="list")
def list_() -> int:
    """List the scenarios, with what each shows."""
    from streampca.cli.scenario import list_ as command

    return command()


@scenario.command(name="run")
def run_(name: str, /, *, rows: int | None = None) -> int:
    """Run a scenario; exit with 1 if something it expects does not hold.

    Parameters
    ----------
    name
        Name of a scenario, or the path of a TOML file.
    rows
        Use so many rows instead of the scenario's own number.
    """
    from streampca.cli.scenario import run as command

    return command(name, rows)


@app.command
def cite() -> int:
    """Print BibTeX of streampca and of the papers it stands on."""
    from streampca.cli.cite import BIBTEX

    print(BIBTEX, end="")
    return 0


@app.command
def version() -> int:
    """Print the versions of streampca and of what it computes with."""
    import platform
    from importlib.metadata import version as of

    print(f"streampca {__version__}")
    print(
        f"Python {platform.python_version()}, "
        + ", ".join(f"{name} {of(name)}" for name in ("numpy", "scipy", "cryptography"))
    )
    return 0


app.command(
    "streampca.cli.bench:bench",
    help="Measure speed beside others, interleaved, with what was asked for beside what was measured.",
)
app.command(
    "streampca.cli.audit:audit",
    help="Try to refute the privacy claims: see how well neighbouring streams can be told apart.",
)
app.command(
    "streampca.cli.plan:plan",
    help="Predict noise, error and regret of everything that applies; recommend one.",
)
app.command(
    "streampca.cli.ledger:app",
    name="ledger",
    help="Privacy budgets of data sets, and what was spent of them.",
)
for _name in ("resume", "status", "export", "verify", "backup"):
    app.command(f"streampca.cli.{_name}:{_name}")
app.command("streampca.cli.serve:serve", help="Show a run as a page in the browser, and follow it while it grows.")
app.command(
    "streampca.cli.report:report",
    help="Write a report of a run: one HTML file with guarantee, curves and pictures.",
)
