"""Commands that absorb rows: ``streampca run``, ``resume`` and ``pca``."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from streampca.calendar import Calendar
from streampca.cli import inputs
from streampca.cli.algorithms import COMMON, make_algorithm, make_mechanism
from streampca.cli.files import Files, refuse_inputs
from streampca.cli.live import LiveView, view
from streampca.cli.messages import caution
from streampca.cli.options import (
    LIVE,
    Address,
    PcaOptions,
    ReadOptions,
    ReadSettings,
    RunOptions,
    Settings,
    SourceAddress,
    StoreOptions,
    StorePath,
    TablePath,
    about,
    pairs,
    take,
    units_of,
)  # fmt: skip
from streampca.cli.session import NEVER, Session, card_lines, repeated
from streampca.errors import BadParameterError, SourceError, UsageError
from streampca.facade.pca import components_or_share, release_of_people
from streampca.linalg.counts import check_components, check_count
from streampca.mechanisms.adaptive import AdaptiveCovariance, adaptive_mechanism
from streampca.processors.tumbling import Tumbling
from streampca.regret.regret import RegretLog
from streampca.rows import advice
from streampca.rows.bounds import PrivateBounds
from streampca.rows.protocol import NumberedRows, PositionedSource, Table
from streampca.rows.report import AdmissionReport
from streampca.store.config import public_parameters
from streampca.stream import absorb
from streampca.stream.stream import Stream
from streampca.views.card import curator_card
from streampca.views.facts import Marks


def run(
    source: Annotated[
        SourceAddress,
        about(
            "CSV, TSV or NDJSON (also .gz, .zip) or Parquet file of numeric columns, or a folder of Parquet files; a "
            "pattern such as "
            '"day-*.csv", a named pipe, or - for standard input; kafka://BROKER/TOPIC?group=NAME with messages of '
            "JSON; sqlite:///FILE, duckdb:///FILE or postgresql://... with --read query=... and --read cursor=..."
        ),
    ],
    /,
    *,
    options: RunOptions = RunOptions(),  # noqa: B008
) -> int:
    """Stream rows from a file, a pipe or standard input; write private releases.

    The releases are written as JSON, one a line. Ctrl-C ends it with complete
    files and exit code 130. Every run with fresh noise on the same rows spends the
    budget anew.
    """
    # Everything is checked before a file is written or a budget pays: settings, algorithm, page, rows, files, ledger.
    given = pairs(options.set_)
    for key in given:
        if (part := key.partition(".")[0]) in ("store", "serve") and not getattr(options, part):
            raise UsageError(f"--set {key}: it goes with --{part}")
    settings = take(Settings, given, "missing", "bounds", "unit", "out", "regret", "store", "serve", others=True)
    unit = inputs.unit_of(options, settings)
    check_count("regret.every", settings.regret_every)
    check_count("processes", options.processes, optional=True)
    if options.processes is not None:
        inputs.parquet_files(source)
    # One reader, because a pipe can be opened only once.
    opened_rows = cache(lambda: inputs.rows_of(source, options, unit))
    units = units_of(given, lambda: opened_rows().features)
    common = {name: getattr(options, name) for name in COMMON}
    # None is omitted, so that algorithms without this parameter do not refuse it.
    common |= {"publish_regret": None if options.private_regret is None else True, "unit": unit}
    # Not counted: pipes and files that are followed, and runs in a store, which other files may continue.
    # Nor with a calendar, whose horizon is a number of periods.
    counts = isinstance(source, Path) and str(source) != "-" and options.store is None and not options.reading().follow
    if isinstance(options.release_every, str):
        counts, end = False, options.reading().end
        if options.horizon is None and end is not None:  # the number of periods from --start to the end
            calendar = Calendar.of(options.release_every, options.start)
            common["horizon"] = None if calendar is None else calendar.number(Calendar.time("end", end))
    elif options.start is not None:
        raise UsageError("--start: it goes with a calendar, such as --release-every 1d")
    count = cache(lambda: opened_rows().count_rows()) if counts else None  # one reading of a text
    algorithm = make_algorithm(options.algorithm, common, given, missing=inputs.missing_scale(options), count=count)
    if settings.serve_public and not algorithm.guarantee.is_private:
        raise UsageError(f"serve.public: there is no privacy guarantee ({algorithm.guarantee.theorem})")
    k = algorithm.n_components
    title = f"streampca run {source.name} · {type(algorithm).__name__}, k = {k}"
    served = None
    if options.serve:
        from streampca.cli.page import ServedPage, print_url  # needs the extra serve

        served = ServedPage(is_public=settings.serve_public, port=settings.serve_port)

    # Warnings follow from public settings, and are printed once nothing is refused anymore.
    reading = options.reading()
    rows = inputs.counted(opened_rows(), source, algorithm, reading)
    d = len(rows.features)
    check_components(k, d, optional=True)
    horizon: int | None = getattr(algorithm, "horizon", None)
    # The number of rows of a text file is estimated from the bytes of its cells: not for a log.
    known = rows.expected_rows if sys.stderr.isatty() else getattr(rows, "n_rows", None)
    n_rows = min((n for n in (horizon, known) if n is not None), default=None)
    if algorithm.has_calendar:
        n_rows = None
    warned = advice.settings_warnings(algorithm.guarantee, n_rows)
    warned += advice.size_warnings(k, d, algorithm.square_bytes)
    warned += advice.unit_warnings(algorithm.unit, horizon)
    if options.bounds == "private":
        warmup = settings.bounds_warmup
        wanted = PrivateBounds.of(algorithm.guarantee, warmup, horizon if warmup is None else None)
        counted = count() if count is not None and options.horizon is None else None
        if counted is not None:
            wanted.check(d, counted, source.name)
        warned += wanted.warnings(d, n_rows)

    if isinstance(source, Path):
        refuse_inputs(source, options.out, options.regret, options.private_regret, options.summary)
    files = Files(
        options.out, gram=settings.out_gram, keep_every=settings.out_keep_every, regret=options.regret,
        private_regret=options.private_regret, summary=options.summary, force=options.force,
    )  # fmt: skip
    with ExitStack() as opened:
        account = opened.enter_context(inputs.paying(options))
        database = None if options.store is None else inputs.open_store(options.store, settings)
        stream = Stream(
            algorithm, **inputs.stream_settings(options, settings, rows), account=account, store=database,
            regret=RegretLog(every=NEVER if database is None else None),
        )  # fmt: skip
        if database is not None:
            inputs.remember(database, source, reading, options.columns)
        shown = view(options.live, title, stream.guarantee, horizon)
        views = [shown]
        if served is not None:
            print_url(opened.enter_context(served.server))
            views.append(served)
        caution(warned)
        session = Session(
            stream, rows, files, views, every=settings.regret_every, store=database, name=source.name, units=units,
            quiet=options.quiet,
            # A file that has grown since it was counted is read up to the count.
            limit=None if algorithm.has_calendar or options.horizon is not None else horizon,
            page=None if served is None else served.page,
            # A record costs an eigenproblem. If no file or view needs the curve, only the records shown are computed.
            followed=options.regret is not None or served is not None or isinstance(shown, LiveView),
            time=reading.time, end=reading.end,
            paths=None if options.processes is None else inputs.parquet_files(source), processes=options.processes,
        )  # fmt: skip
        session.run()
        budget = "" if account is None else account.remaining()
        lines = session.conclude(title, budget)
        if database is not None:
            lines.append(f"curator only: {options.store}, {options.store}.key")
        print(*lines, sep="\n", file=sys.stderr)
        if n_rows is None and stream.t and not algorithm.has_calendar:
            caution(advice.delta_warnings(algorithm.guarantee, stream.t))
        if served is not None:
            served.close(stay=not session.signal and session.problem is None, budget=budget)
    return session.exit_code()


def resume(
    store: StorePath,
    source: Annotated[
        SourceAddress | None, about("All rows, from the first one. By default the source of the run, with its columns.")
    ] = None,
    /,
    *,
    options: ReadOptions = ReadOptions(),  # noqa: B008
    opening: StoreOptions = StoreOptions(),  # noqa: B008
    continues: Annotated[
        bool, about("The source begins with the next row: another file, topic or query.", negative="")
    ] = False,
    moved: Annotated[
        bool,
        about(
            "Continue from a copy, or a database that was set back, although another copy may have continued. This is "
            "a second run with noise of its own: both together cost sqrt(2) times mu, and the ledger pays again.",
            negative="",
        ),
    ] = False,
    live: Annotated[bool | None, about(LIVE)] = None,
    processes: Annotated[int | None, about("As in run, for a run with processes.")] = None,
) -> int:
    """Continue a durable run where it was.

    Durable rows are passed over; no budget is spent anew. Read the releases with
    streampca export.
    """
    with inputs.open_store(store, opening.settings()) as database:
        stream = Stream.resume(database, moved=moved)
        before, features = stream.t, stream.features
        dated = stream.algorithm.has_calendar
        following = "" if dated else f"; next is row {before + 1}"
        inputs_word = "periods" if dated else "rows"
        print(f"Resumed after {before} {inputs_word}{following}.", file=sys.stderr)
        reading, columns, unit = options.reading(), options.columns, stream.algorithm.unit
        # A file that continues the first one is not remembered: the next resume needs all rows from the first one.
        if source is not None:
            inputs.remember(database, None if continues and isinstance(source, Path) else source, reading, columns)
        elif (stored := database.source) is None:
            raise UsageError(f"{store} does not know where its rows come from; name their file")
        else:
            reading, columns = ReadSettings(**stored["reading"]), stored["columns"]
            source = Address(stored["source"]) if stored["elsewhere"] else Path(stored["source"])
        rows = inputs.open_source(source, reading, columns, features=features, unit=unit)
        if features is not None and tuple(rows.features) != features:
            raise UsageError(f"the columns of {source.name} are not those of the run, {', '.join(features)}")
        # A file that is not declared to be another one has the rows of the run, which are compared.
        log = stream.engine.log
        last = None if continues or log is None else log.position(durable=False)
        name, passed = None if last is None else last.source, repeated(stream, database)
        rows = inputs.counted(rows, source, stream.algorithm, reading, name, passed)
        own = isinstance(rows, PositionedSource) and not isinstance(rows, NumberedRows)  # positions of its own
        # Blocks have no digest of their rows: the files are compared instead.
        absorbed = processes is not None or (database.position or ("",))[0] == absorb.SOURCE
        shown = view(live, f"streampca resume {store.name}", stream.guarantee, None)
        session = Session(
            stream, rows, Files(), [shown],
            skip=0 if continues or dated or own else before,
            new_source=continues, followed=isinstance(shown, LiveView), store=database, time=reading.time,
            end=reading.end, processes=processes, paths=inputs.parquet_files(source) if absorbed else None,
        ).run()  # fmt: skip
        if session.problem is not None and stream.t > before:
            print(session.stopped(), file=sys.stderr)
        print(
            f"{stream.t - before} {inputs_word} more, {stream.t} in all; releases: streampca export {store}",
            file=sys.stderr,
        )
        if (card := session.card()) is not None:
            print("", *card_lines(card), sep="\n", file=sys.stderr)
        return session.exit_code()


def pca(
    file: Annotated[TablePath, about("CSV (also .gz, .zip), NDJSON or Parquet file.")],
    /,
    *,
    options: PcaOptions = PcaOptions(),  # noqa: B008
) -> int:
    """Release the principal components of a whole table once.

    Holds the table in memory. Bad rows, with a missing value or one that is no
    number, count for nothing. Each release of the same rows spends the budget anew.
    """
    given = pairs(options.set_)
    settings = take(Settings, given, "missing", "bounds", "unit", "out", others=True)
    unit, private = inputs.unit_of(options, settings), options.bounds == "private"
    if settings.unit_period is not None:
        raise UsageError("--set unit.period: one release has no periods. Omit it, or use streampca run")
    opened_rows = cache(lambda: inputs.rows_of(file, options, unit))
    units = units_of(given, lambda: opened_rows().features)
    # A share of the variance is chosen from the release, whose matrix does not depend on the number of components.
    k, share = (None, None) if options.n_components is None else components_or_share(options.n_components)
    common = {name: getattr(options, name, None) for name in COMMON} | {"n_components": k, "unit": unit}
    missing, mechanism, name = inputs.missing_scale(options), None, options.mechanism
    # The rows of a person get one weight together. Private bounds are for rows that arrive one by one.
    together = unit is not None and not private
    if name is None and together:
        name = "gaussian"
    if name is None:
        algorithm: Any = make_algorithm("fpl", common, given, missing=missing)
    else:
        if share is not None and options.mechanism is not None:
            raise BadParameterError("n_components", share, f"a whole number for --mechanism {name}")
        mechanism = make_mechanism("adaptive" if name == "auto" else name, common, given, missing=missing)
    source = opened_rows()
    refuse_inputs(file, options.out)
    files = Files(options.out, gram=settings.out_gram, force=options.force)
    with inputs.paying(options) as account:
        # Damage raises before it is paid.
        parts = list(source.blocks_with(unit.columns)) if unit is not None else [(one, []) for one in source.blocks()]
        n, d = sum(len(block) for block, _ in parts), len(source.features)
        if not n:
            raise SourceError(file, "no rows; there is nothing to release")
        # Private bounds are (epsilon, delta)-private, so a mechanism with delta 0 gains nothing with them.
        if mechanism is None:
            algorithm = replace(algorithm, horizon=n, release_every=n)
        else:
            # The options were checked for the adaptive mechanism; only the table has the number of features.
            if name == "auto" and not private and isinstance(mechanism, AdaptiveCovariance):
                mechanism = adaptive_mechanism(
                    d, n_components=mechanism.n_components, epsilon=mechanism.epsilon, delta=mechanism.delta,
                    adjacency=mechanism.adjacency, center=mechanism.center,
                )  # fmt: skip
            algorithm = mechanism if together else Tumbling(mechanism, release_every=n)
        warned = advice.settings_warnings(algorithm.guarantee, n)
        warned += advice.size_warnings(None if share is not None else algorithm.n_components, d)
        if private:
            warmup = settings.bounds_warmup
            wanted = PrivateBounds.of(algorithm.guarantee, warmup, n if warmup is None else None)
            wanted.check(d, n, file.name)
            settings = replace(settings, bounds_warmup=wanted.rows(d))
            warned += wanted.warnings(d, n)
        caution(warned)
        scale = inputs.stream_settings(options, settings, source)
        if together:
            del scale["warmup"], scale["start"]
            told = list[AdmissionReport]()
            release = release_of_people(
                algorithm, source.features, parts, account=account, curator=told.append, **scale
            )
            release = release if share is None else release.holding(share)
            files.begin(release.terms, public_parameters(algorithm, row_norm=release.row_norm, bounds=source.bounds))
            files.releases.add([release])
            files.releases.close()
            title = f"{file.name} → {files.releases.path}" if files.releases.is_written else file.name
            budget = "" if account is None else account.remaining()
            card = curator_card(release, None, told[0], budget, title=title, marks=Marks.of(release))
            print(*card_lines(replace(card, units=units), quiet=options.quiet), sep="\n", file=sys.stderr)
            return 0
        stream = Stream(algorithm, **scale, account=account, regret=None)
        table = Table(source.features, source.bounds, lambda: (block for block, _ in parts), lambda _: iter(parts))
        session = Session(stream, table, files, [], name=file.name, share=share, units=units, quiet=options.quiet).run()
        lines = session.conclude("", "" if account is None else account.remaining(), brief=True)
    print(*lines, sep="\n", file=sys.stderr)
    return session.exit_code()
