"""Commands on what was released: ``streampca show``, ``transform`` and ``report``."""

from __future__ import annotations

import json
import sys
import textwrap
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from streampca.cli.files import OutputFile, refuse_inputs
from streampca.cli.inputs import open_source
from streampca.cli.messages import terminal_width
from streampca.cli.options import UNITS, At, Force, HyphenPath, ReadOptions, RunPath, TablePath, about, pairs, units_of
from streampca.errors import NoReleaseError, UsageError
from streampca.release.release import Release
from streampca.views.card import card
from streampca.views.facts import Marks, in_words
from streampca.views.plots import names_of
from streampca.views.report import html, read_run
from streampca.views.run_files import RunFiles

_NOT_PRIVATE = "NOT PRIVATE, curator only: scores are functions of raw rows; do not publish"


def show(
    path: RunPath,
    /,
    *,
    at: At = None,
    set_: Annotated[tuple[str, ...], about(f"{UNITS[0].upper()}{UNITS[1:]}.", "--set", negative="")] = (),
    guarantee: Annotated[bool, about("Print the guarantee in words, too.", negative="")] = False,
    json_: Annotated[
        bool, about("Print one JSON object, with every feature and every digit.", "--json", negative="")
    ] = False,
) -> int:
    """Show a release: components in the units of the columns, shares, mean.

    Publishable, like the release itself.
    """
    release, count = release_at(path, at)
    most = release.n_features if json_ else 40
    marks = Marks.of(release, run=count > 1 or at is not None)
    shown = card(release, title=path.name, releases=count, most=most, components=release.n_components, marks=marks)
    given = pairs(set_)
    units = units_of(given, lambda: names_of(release))
    if given:
        raise UsageError(f"--set {next(iter(given))}: show takes units.NAME=UNIT only")
    words = in_words(release.guarantee)
    if json_:
        values = [] if release.packed is None else release.explained_variance[: marks.clear or 0].tolist()
        facts = {
            "t": release.t, "releases": count, "n_features": release.n_features,
            "n_components": release.n_components, "n_clear": marks.clear,
            "centered": bool(release.details.get("centered")),
            "facts": {fact.label: fact.value for fact in shown.facts},
            "explained_variance": values, "shares": shown.shares, "loadings": shown.loadings["rows"],
            "guarantee": release.guarantee.to_dict(), "guarantee_in_words": dict(words),
        }  # fmt: skip
        print(json.dumps(facts, allow_nan=False))
        return 0
    width = terminal_width()
    print(replace(shown, units=units).text(width))
    for head, text in words if guarantee else ():
        print(f"\n{head}", *textwrap.wrap(text, width), sep="\n")
    return 0


def transform(
    releases: RunPath,
    source: Annotated[TablePath, about("Any file that streampca run reads, with the columns of the release.")],
    /,
    *,
    options: ReadOptions = ReadOptions(),  # noqa: B008
    out: Annotated[HyphenPath, about("CSV file, or - for standard output. Curator only.")] = Path("scores.csv"),
    at: At = None,
    force: Force = False,
) -> int:
    """Write the scores of raw rows on a released subspace. NOT private.

    A score is a function of its row: a reader of the file learns about every row
    in it. Only its owner may read the file, and its first line is a warning.
    """
    refuse_inputs(source, out)
    refuse_inputs(releases, out)
    release, _ = release_at(releases, at)
    rows = open_source(source, options.reading(), options.columns, features=release.features)
    print(_NOT_PRIVATE, file=sys.stderr)
    count = 0
    with closing(OutputFile(out, force=force, curator=True)) as written:
        names = ",".join(f"score_{i}" for i in range(1, release.n_components + 1))
        written.write(f"# {_NOT_PRIVATE}\nrow,{names}\n")
        for block in rows.blocks():
            for scores in release.transform(block).tolist():
                count += 1
                # Rows that cannot be read have no scores: nan, which differs from itself.
                cells = ("" if score != score else repr(score) for score in scores)
                written.write(f"{count},{','.join(cells)}\n")
    print(f"curator only: {count} scores{'' if str(out) == '-' else f' in {out}'}", file=sys.stderr)
    return 0


def release_at(path: Path, at: int | None) -> tuple[Release, int]:
    """Return the latest release of a run, or the current one after ``at`` rows, and the number of releases up to it."""
    run, chosen, count = RunFiles(path), None, 0
    # One pass over parts of the file, which may be larger than memory.
    while releases := run.new_releases():
        for release in releases:
            if at is None or release.t <= at:
                chosen, count = release, count + 1
            elif chosen is None:
                raise NoReleaseError(f"--at {at}: the first release is at row {release.t}")
    if chosen is None:
        raise NoReleaseError(f"{path}: there is no release yet; continue the run until one is due")
    return chosen, count


def report(
    path: RunPath,
    /,
    *,
    out: Annotated[Path, about("The HTML file.", "--out", "-o")] = Path("report.html"),
    regret: Annotated[Path | None, about("File of the exact regret: the report is the curator's, and says so.")] = None,
    force: Force = False,
) -> int:
    """Write a report of a run: one HTML file that needs nothing else.

    It holds the algorithm, the guarantee in words, curves, eigenvalues with error
    bars, and loadings. It is publishable unless --regret is given.
    """
    page, releases = read_run(path, regret)
    with closing(OutputFile(out, force=force, curator=not page.is_publishable)) as written:
        written.write(html(page, releases))
    print(f"{'publishable:' if page.is_publishable else 'curator only:'} {out}", file=sys.stderr)
    return 0
