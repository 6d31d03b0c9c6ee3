"""``streampca run``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from streampca.cli.algorithms import make_algorithm
from streampca.cli.bounds import Ranges, read_bounds
from streampca.cli.live import facts, is_live, view
from streampca.cli.outputs import PrivateRegretFile, RegretFile, ReleaseFile
from streampca.cli.session import NEVER, Durable, Ending, Session
from streampca.errors import BadParameter
from streampca.linalg.counts import check_count
from streampca.linalg.types import FloatArray
from streampca.regret import RegretLog
from streampca.rows import RowSource
from streampca.stream import Stream

if TYPE_CHECKING:  # its server is an optional part
    from streampca.cli.page import Page


@dataclass(frozen=True)
class Options:
    """What is run on which rows."""

    processor: str
    common: Mapping[str, Any]
    release_every: int | None
    extra: tuple[str, ...]
    columns: str | None
    bounds: str | None
    row_norm: float
    on_bad_row: Literal["raise", "zero"]
    center: bool
    seed: int | None
    store: Path | None = None
    passphrase_file: Path | None = None
    witness: Path | None = None
    commit_every: str | None = None
    ledger: Path | None = None
    data_set: str | None = None


@dataclass(frozen=True)
class Outputs:
    """Which files are written."""

    releases: Path
    gram: bool = True
    keep_every: int = 1
    regret: Path | None = None
    regret_every: int = 1000
    private_regret: Path | None = None
    force: bool = False


def run(file: Path, *, options: Options, outputs: Outputs, live: bool | None, page: Page | None = None) -> int:
    """Stream a file into an algorithm; return the exit code."""
    with ExitStack() as held:
        return _run(file, options, outputs, live, page, held)


def _run(file: Path, options: Options, outputs: Outputs, live: bool | None, page: Page | None, held: ExitStack) -> int:
    if options.store is None and (options.witness is not None or options.commit_every is not None):
        raise BadParameter("--witness and --commit-every say how a durable run is kept; they go with --store")
    if (options.ledger is None) != (options.data_set is None):
        raise BadParameter("--ledger and --data-set go together: the account of a data set pays for the run")
    algorithm = make_algorithm(
        options.processor, options.common, release_every=options.release_every, extra=options.extra
    )
    if page is not None:
        page.check(algorithm.guarantee)
    if options.center and outputs.regret is not None:
        raise BadParameter("--regret: with --center no regret is kept; leave one of them out")
    bounds = None if options.bounds is None else read_bounds(options.bounds)
    source = open_rows(file, options.columns, bounds, options.on_bad_row)
    window = getattr(algorithm, "window", None)  # a window is scored against the best subspace of each window
    store = None
    if options.store is not None:
        from streampca.cli.durable import open_store

        ReleaseFile(outputs.releases, force=outputs.force)  # refuses before the store begins a run
        store = open_store(
            options.store, options.passphrase_file, witness=options.witness, commit_every=options.commit_every
        )
    account = None
    if options.ledger is not None and options.data_set is not None:
        from streampca.store.ledger import Ledger

        account = held.enter_context(Ledger.existing(options.ledger)).account(options.data_set)
    # A record costs an eigenproblem: where nobody follows the curve, only those are made that are looked at.
    followed = outputs.regret is not None or page is not None or is_live(live)
    check_count("every", outputs.regret_every)
    stream = Stream(
        algorithm,
        row_norm=options.row_norm,
        on_bad_row=options.on_bad_row,
        center=options.center,
        regret=None if options.center else RegretLog(every=None if store is not None else NEVER, window=window),
        ledger=account,
        seed=options.seed,
        store=store,
    )
    title = f"streampca run {file.name} · {type(algorithm).__name__}, k = {algorithm.n_components}"
    if window is not None and not options.center:
        title += f" · regret against the best subspace of each {window} rows"
    if page is not None:
        page.open(title)
    ending = stream_to_files(
        stream, source, outputs, title=title, live=live, total=getattr(algorithm, "horizon", None), followed=followed,
        center=options.center, store=store, page=page,
    )  # fmt: skip
    lines = closing(ending, stream, outputs)
    if store is not None:
        store.close()
        lines.append(f"curator only: {options.store}, {options.store}.key")
    for line in lines:
        print(line, file=sys.stderr)
    if page is not None:
        page.close(stay=not ending.signal and ending.problem is None)
    if ending.problem is not None:
        raise ending.problem
    return 128 + ending.signal if ending.signal else 0


def open_rows(
    file: Path, columns: str | None, bounds: Ranges | None, on_bad_row: Literal["raise", "zero"]
) -> RowSource:
    """The rows of a CSV or Parquet file, by the end of its name."""
    from streampca import sources

    chosen = None if columns is None else [name.strip() for name in columns.split(",") if name.strip()]
    missing = "raise" if on_bad_row == "raise" else "nan"
    if file.suffix in (".parquet", ".pq"):
        return sources.from_parquet(file, columns=chosen, bounds=bounds, missing=missing)
    return sources.from_csv(file, columns=chosen, bounds=bounds, missing=missing)


def stream_to_files(
    stream: Stream,
    source: RowSource,
    outputs: Outputs,
    *,
    title: str,
    live: bool | None,
    total: int | None,
    followed: bool,
    limit: int | None = None,
    center: bool = False,
    store: Durable | None = None,
    page: Page | None = None,
) -> Ending:
    """Run a stream to the end of its rows with files and a view; the files are complete however it ends."""
    if outputs.regret is not None and outputs.regret == outputs.releases:
        raise BadParameter(f"--out and --regret are both {outputs.regret}; releases are public, regret is not")
    if outputs.private_regret is not None and outputs.private_regret in (outputs.releases, outputs.regret):
        raise BadParameter(f"--private-regret is {outputs.private_regret}, as is another file; give it one of its own")
    with ExitStack() as files:
        releases = ReleaseFile(outputs.releases, gram=outputs.gram, keep_every=outputs.keep_every, force=outputs.force)
        files.callback(releases.close)
        regret = None
        if outputs.regret is not None:
            regret = RegretFile(outputs.regret, force=outputs.force)
            files.callback(regret.close)
        private_regret = None
        if outputs.private_regret is not None:
            private_regret = PrivateRegretFile(outputs.private_regret, force=outputs.force)
            files.callback(private_regret.close)

        def header() -> None:
            parameters = public_parameters(stream, source, center=center)
            # The constant that centring appends to the rows is in no release.
            releases.header(replace(stream.processor.terms, features=stream.features), parameters)
            if page is not None:
                page.describe(parameters)
            if regret is not None:
                regret.header()

        shown = view(live, title, stream.guarantee, stream.algorithm.n_components, total)
        session = Session(
            stream,
            source,
            releases=releases,
            regret=regret,
            private_regret=private_regret,
            view=shown if page is None else page.beside(shown),
            header=header,
            limit=limit,
            every=outputs.regret_every,
            followed=followed,
            store=store,
            publish=None if page is None else page.publish,
        )
        return session.run()


def public_parameters(stream: Stream, source: RowSource, *, center: bool) -> dict[str, Any]:
    """The parameters of a run that may be published. A seed may not: it gives the noise away."""
    shown = {k: v for k, v in stream.algorithm.parameters().items() if k != "seed"}
    bounds = None
    if source.bounds is not None:
        bounds = [_plain(side) for side in source.bounds]
    return {
        "processor": type(stream.algorithm).__name__,
        **{k: v if isinstance(v, (int, float, str, bool, type(None))) else repr(v) for k, v in shown.items()},
        "row_norm": stream.row_norm,
        "center": center,
        "bounds": bounds,
    }


def _plain(side: FloatArray) -> list[float]:
    return [float(value) for value in side]


def closing(ending: Ending, stream: Stream, outputs: Outputs) -> list[str]:
    """What to say at the end: what happened, what may be published and what may not."""
    progress = ending.progress
    lines: list[str] = []
    if ending.problem is not None and not progress.t:
        return lines
    if ending.signal:
        files = "the files are complete up to there" if progress.t else "no file was written"
        lines.append(f"Interrupted after {progress.t} rows; {files}.")
    values = dict(facts(progress, stream.guarantee, stream.algorithm.n_components))
    if ending.problem is not None:
        lines.append(f"Stopped after {progress.t} rows by the problem below; the files are complete up to there.")
    lines.append(f"{progress.t} rows, {progress.releases} releases, {progress.seconds:.1f} s")
    lines.append(f"privacy:      {values['privacy']}")
    if progress.t and not progress.releases:
        lines.append("No release was due yet: give more rows, or a smaller --release-every.")
    if progress.t and str(outputs.releases) != "-":
        lines.append(f"publishable:  {outputs.releases}")
    if progress.private is not None and outputs.private_regret is not None:
        lines.append(f"publishable:  {outputs.private_regret}")
    if "public" in values:
        lines.append(f"publishable:  {values['public']}")
    if progress.t and outputs.regret is not None:
        lines.append(f"curator only: {outputs.regret}")
    for name in ("captured", "regret"):
        if name in values:
            lines.append(f"curator only: {name} {values[name]}")
    return lines
