"""Commands that stream rows: ``streampca run`` and ``streampca resume``."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from streampca.cli import caution
from streampca.cli.reading import Address, Reading, SourceAddress
from streampca.errors import BadParameterError, SourceError

if TYPE_CHECKING:
    from streampca.store.ledger import Account
    from streampca.store.store import Store


def _no_directory(_type: object, path: Path | None) -> None:
    if path is not None and path.is_dir():
        raise ValueError(f"{path} is a directory; give the file in it, such as run.db")


#: A file that a directory cannot stand for.
FilePath = Annotated[Path, Parameter(validator=_no_directory)]
#: A path that may begin with a hyphen, such as - for standard output.
OutPath = Annotated[Path, Parameter(allow_leading_hyphen=True)]
#: An option that is given or not, without a negative form.
Switch = Annotated[bool, Parameter(negative="")]


@contextmanager
def paying(ledger: Path | None, data_set: str | None) -> Iterator[Account | None]:
    """Open the account that pays, if there is a ledger."""
    if (ledger is None) != (data_set is None):
        raise BadParameterError("--ledger and --data-set go together: the account of a data set pays for the run")
    if ledger is None or data_set is None:
        yield None
        return
    from streampca.store.ledger import Ledger

    with Ledger.existing(ledger) as opened:
        yield opened.account(data_set)


def remember(store: Store, source: Path | Address | None, reading: Reading) -> None:
    """Keep in a store where the rows of its run come from, so that it can be resumed without being told."""
    if source is None or str(source) == "-":
        store.remember_source(None)
        return
    where = str(source if isinstance(source, Address) else source.absolute())
    store.remember_source(
        {"source": where, "elsewhere": isinstance(source, Address), "reading": dataclasses.asdict(reading)}
    )


def run(
    source: SourceAddress,
    /,
    *,
    n_components: Annotated[int | None, Parameter(name=["--n-components", "-k"])] = None,
    epsilon: float | None = None,
    delta: float | None = None,
    reading: Reading = Reading(),  # noqa: B008
    bounds: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    warmup: int | None = None,
    row_norm: float | None = None,
    on_bad_row: Literal["raise", "zero"] = "raise",
    center: bool | None = None,
    processor: str = "fpl",
    mechanism: str | None = None,
    horizon: int | None = None,
    window: int | None = None,
    release_every: Annotated[int | None, Parameter(name=["--release-every", "--every"])] = None,
    adjacency: Literal["zero-out", "replace"] | None = None,
    noise: str | None = None,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative="")] = None,
    out: OutPath = Path("releases.jsonl"),
    gram: bool = True,
    keep_every: int = 1,
    regret: Path | None = None,
    regret_every: int = 1000,
    private_regret: Path | None = None,
    summary: Path | None = None,
    live: bool | None = None,
    seed: int | None = None,
    store: FilePath | None = None,
    passphrase_file: Path | None = None,
    witness: Path | None = None,
    commit_every: str | None = None,
    ledger: Path | None = None,
    data_set: str | None = None,
    force: Switch = False,
    serve: Switch = False,
    public: Switch = False,
    port: int = 8765,
    token_file: Path | None = None,
) -> int:
    """Stream rows from a file, a pipe or standard input; write private releases.

    The releases are written as JSON, one a line. Ctrl-C ends it with complete
    files and exit code 130. Every run with fresh noise on the same rows spends the
    budget once more.

    Parameters
    ----------
    source
        CSV, TSV or NDJSON (also .gz, .zip), Parquet or Arrow file of numeric columns; a pattern such as "day-*.csv",
        a named pipe, or - for standard input; kafka://BROKER/TOPIC?group=NAME with messages of JSON; sqlite:///FILE,
        duckdb:///FILE or postgresql://... with --query and --cursor.
    n_components
        Dimension of the subspace. Most algorithms need it, and both privacy parameters.
    epsilon
        Privacy parameter of all releases together, e.g. 1.
    delta
        Privacy parameter, well below one over the number of rows, e.g. 1e-6.
    bounds
        Public ranges of the columns: lo:hi for all, name=lo:hi,... or a JSON file {"name": [lo, hi]}. Or private: the
        first rows spend their whole budget on finding them, and serve for nothing else.
    warmup
        With --bounds private: number of these rows. Chosen from the budget, the number of columns and the horizon, if
        left out.
    row_norm
        Longer rows are scaled onto the ball of this radius; 1, if left out. This or --bounds must be given.
    on_bad_row
        Stop at a row with missing or bad values, or absorb a zero row in its place.
    center
        Take the mean out, from the same private release: some 12 % more noise. On by default, for algorithms
        that release Gram matrices with Gaussian noise; --no-center is the form of the papers.
    processor
        Algorithm: fpl (private follow the perturbed leader), window, private-oja, dp-pca, tumbling, or a class name.
    mechanism
        Of tumbling: what releases each block of --every rows; see streampca release.
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
    summary
        File for what was released and promised, with exact figures, as Markdown. Curator only.
    live
        Live view in the terminal. On by default, where standard error is one.
    seed
        Reproducible noise. For tests: not private against whoever knows the seed.
    store
        Database that makes the run durable: continue it with streampca resume. Curator only.
    passphrase_file
        File with a passphrase that protects the key of the store.
    witness
        With --store: where to note the progress of the run, best on other storage. Beside the database, if left out.
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
    token_file
        With --serve: keep the token of the page in this file (mode 0600), so that an open page goes on after a restart.
    """
    from streampca import advice
    from streampca.bounds import NONE_GIVEN, PrivateBounds, read_bounds
    from streampca.cli.arguments import make_algorithm, missing_options, open_store
    from streampca.cli.live import is_live, view
    from streampca.cli.session import NEVER, Files, Session, closing, refuse_inputs, write_summary
    from streampca.cli.terminal import is_terminal
    from streampca.linalg.counts import check_count
    from streampca.regret import RegretLog
    from streampca.store.store import room_warnings
    from streampca.stream.stream import Stream

    if public and not serve:
        raise BadParameterError("--public goes with --serve; without it, --out is the file that may be published")
    if token_file is not None and (public or not serve):
        raise BadParameterError("--token-file goes with --serve, and the public page has no token")
    if store is None and (witness is not None or commit_every is not None):
        raise BadParameterError("--witness and --commit-every say how a durable run is kept; they go with --store")
    check_count("every", regret_every)
    page = None
    if serve:
        from streampca.cli.page import Page

        page = Page(public=public, port=port, token_file=token_file)
    common = {
        "n_components": n_components, "epsilon": epsilon, "delta": delta, "horizon": horizon, "window": window,
        "adjacency": adjacency, "noise": noise, "publish_regret": None if private_regret is None else True,
    }  # fmt: skip
    algorithm = make_algorithm(processor, common, mechanism=mechanism, release_every=release_every, extra=set_ or ())
    if page is not None:
        page.check(algorithm.guarantee)
    if bounds is None and row_norm is None:
        raise BadParameterError(NONE_GIVEN + missing_options(source, reading, on_bad_row, has_scale=False))
    private = bounds == "private"
    rows = reading.open(source, None if bounds is None or private else read_bounds(bounds), on_bad_row)
    # That of a text file is an estimate from the bytes of its cells: not for a log.
    known = rows.expected_rows if is_terminal(sys.stderr) else getattr(rows, "n_rows", None)
    ends = [n for n in (getattr(algorithm, "horizon", None), known) if n is not None]
    n_rows = min(ends, default=None)
    told = advice.settings_warnings(algorithm.guarantee, n_rows)
    told += advice.dimension_warnings(algorithm.n_components, len(rows.features))
    told += advice.memory_warnings(algorithm.square_bytes, len(rows.features))
    if store is not None:
        told += room_warnings(store, algorithm, len(rows.features), n_rows)
    if private:
        wanted = PrivateBounds.of(algorithm.guarantee, warmup, None)
        told += wanted.warnings(len(rows.features), n_rows)
    if isinstance(source, Path):
        refuse_inputs(source, out, regret, private_regret, summary)
    files = Files(
        out, gram=gram, keep_every=keep_every, regret=regret, private_regret=private_regret, summary=summary,
        force=force,
    )  # fmt: skip
    scored = getattr(algorithm, "window", None)  # a window is scored against the best subspace of each window
    title = f"streampca run {source.name} · {type(algorithm).__name__}, k = {algorithm.n_components}"
    if scored is not None:
        title += f" · regret against the best subspace of each {scored} rows"
    with ExitStack() as opened:
        account = opened.enter_context(paying(ledger, data_set))
        database = None
        if store is not None:
            database = open_store(store, passphrase_file, witness=witness, commit_every=commit_every)
        stream = Stream(
            algorithm,
            row_norm=1.0 if row_norm is None else row_norm,
            bounds="private" if private else None,
            warmup=warmup,
            on_bad_row=on_bad_row,
            center=algorithm.can_center if center is None else center,
            regret=RegretLog(every=NEVER if database is None else None, window=scored),
            ledger=account,
            seed=seed,
            store=database,
        )
        if database is not None:
            remember(database, source, reading)
        if page is not None:
            page.open(title)
        for text in told:
            caution(text)
        shown = view(live, title, stream.guarantee, algorithm.n_components, getattr(algorithm, "horizon", None))
        session = Session(
            stream,
            rows,
            files,
            [shown] if page is None else [shown, *page.views()],
            every=regret_every,
            # A record costs an eigenproblem: where nobody follows the curve, only those shown are made.
            followed=regret is not None or page is not None or is_live(live),
            store=database,
            page=page,
        )
        ending = session.run()
        budget = "" if account is None else account.remaining()
        write_summary(title, ending, files, budget)
        lines = closing(ending, stream, files, budget)
        if database is not None:
            database.close()
            lines.append(f"curator only: {store}, {store}.key")
        print(*lines, sep="\n", file=sys.stderr)
        late = [] if stream.release is None else advice.release_warnings(stream.release)
        if n_rows is None and stream.t:
            late += advice.delta_warnings(algorithm.guarantee, stream.t)
        for text in late:
            caution(text)
        if page is not None:
            page.close(stay=not ending.signal and ending.problem is None, budget=budget)
    if isinstance(ending.problem, SourceError) and not ending.progress.releases:
        raise SourceError(f"{ending.problem}{missing_options(source, reading, on_bad_row, has_scale=True)}")
    return ending.exit_code()


def resume(
    store: FilePath,
    source: SourceAddress | None = None,
    /,
    *,
    reading: Reading = Reading(),  # noqa: B008
    continues: Switch = False,
    moved: Switch = False,
    passphrase_file: Path | None = None,
    witness: Path | None = None,
    commit_every: str | None = None,
    live: bool | None = None,
) -> int:
    """Continue a durable run where it was.

    Rows that are durable already are passed over; no budget is spent anew. Read
    the releases with streampca export.

    Parameters
    ----------
    store
        Database of the run.
    source
        The rows: files from the first on. That of the run, if left out. Columns are those of the run, too.
    continues
        The source begins with the row that comes next: a file that comes next, or another topic or query.
    moved
        Go on from a copy, or from a database that was set back, although another copy may have gone on. It is a
        second run with noise of its own: both together cost sqrt(2) times mu, and the ledger pays again.
    passphrase_file
        File with the passphrase of the key.
    witness
        Where the progress of the run is noted, if not beside the database.
    commit_every
        Time or rows between commits, such as 50ms or 1000; 200ms if left out.
    live
        Live view in the terminal.
    """
    from dataclasses import replace

    from streampca.cli.arguments import open_store
    from streampca.cli.live import is_live, view
    from streampca.cli.session import Files, Session, card_lines, card_of
    from streampca.rows import PositionedSource
    from streampca.stream.stream import Stream

    with open_store(store, passphrase_file, witness=witness, commit_every=commit_every) as opened:
        stream = Stream.resume(opened, moved=moved)
        before = stream.t
        print(f"Resumed after {before} rows; next is row {before + 1}.", file=sys.stderr)
        told = opened.source
        if source is None:
            if told is None:
                raise BadParameterError(f"{store} does not know where its rows come from; name their file")
            reading = Reading(**told["reading"])
            source = Address(told["source"]) if told["elsewhere"] else Path(told["source"])
        else:
            remember(opened, source if isinstance(source, Address) or not continues else None, reading)
        if reading.columns is None and stream.features is not None:
            reading = replace(reading, columns=",".join(stream.features))
        rows = reading.open(source, None, stream.engine.now.admission.on_bad_row)
        if stream.features is not None and tuple(rows.features) != stream.features:
            raise BadParameterError(
                f"the columns of {source.name} are not those of the run, {', '.join(stream.features)}"
            )
        session = Session(
            stream,
            rows,
            Files(),
            [view(live, f"streampca resume {store.name}", stream.guarantee, stream.algorithm.n_components, None)],
            skip=0 if continues or isinstance(rows, PositionedSource) else before,
            new_source=continues,
            followed=is_live(live),
            store=opened,
        )
        ending = session.run()
        print(f"{stream.t - before} rows more, {stream.t} in all; releases: streampca export {store}", file=sys.stderr)
        made = card_of(ending)
        if made is not None:
            print("", *card_lines(made), sep="\n", file=sys.stderr)
        return ending.exit_code()
