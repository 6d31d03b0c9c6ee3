"""Commands that touch no run: ``plan``, ``audit`` and ``version``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from streampca.cli.terminal import console
from streampca.errors import BadParameterError

if TYPE_CHECKING:
    from streampca.auditing import Audit


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

    Covers every algorithm that applies, with its memory and time. Reads no data
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
        What one neighbour differs in: a row against the zero row, or against another row.
    window
        Follow the last so many rows instead of all.
    release_every
        Rows between releases. Chosen, if left out; n_rows means one release.
    center
        Plan for the mean taken out by those that can, as run and release do; --no-center: the form of the papers.
    spectrum
        Guess of the eigenvalues of the mean of a a^T, about the mean if centered, in units of row_norm**2:
        numbers separated by commas, or decaying, steep, flat, spiked.
    row_norm
        Longer rows will be scaled onto the ball of this radius.
    typical_norm
        Guess of the norm of a typical row.
    all_
        Show what serves another purpose, too.
    """
    from rich.table import Table

    from streampca.cli.arguments import command_of
    from streampca.planning import plan as make

    guess: str | list[float] = spectrum
    if not spectrum.isalpha():
        try:
            guess = [float(part) for part in spectrum.split(",")]
        except ValueError:
            raise BadParameterError(f"--spectrum {spectrum}: expected a name, or numbers separated by commas") from None
    made = make(
        n_rows=n_rows, n_features=n_features, n_components=n_components, epsilon=epsilon, delta=delta,
        adjacency=adjacency, window=window, release_every=release_every, center=center, spectrum=guess,
        row_norm=row_norm, typical_norm=typical_norm,
    )  # fmt: skip
    out = console(sys.stdout)
    shown = [p for p in made.predictions if all_ or p.serves == made.recommended.serves]
    every = made.recommended.settings.get("release_every")
    out.print(f"Expected after {n_rows} rows" + (f", released every {every}:" if every else ":"), style="bold")
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    rows = dict(zip(made.predictions, made.table(), strict=True))
    for name in rows[shown[0]]:
        first = name == "candidate"
        table.add_column(name, justify="left" if first else "right", no_wrap=not first, min_width=22 if first else None)
    for prediction in shown:
        table.add_row(*rows[prediction].values(), style="bold" if prediction is made.recommended else None)
    out.print(table)
    for name, texts, style in (
        ("assumed", [made.question.assumed], None),
        ("use", [made.recommended.code], None),
        ("run", [command_of(made.algorithm, row_norm=row_norm)], None),
        ("why", [made.reason], None),
        ("warning", made.warnings, "yellow"),
        ("advice", made.advice, "dim"),
        ("note", [f"{p.label}: {p.note}" for p in shown if p.note], "dim"),
    ):
        for text in texts:
            out.print(f"{name:<8} {text}", style=style)
    return 0


def audit(
    *names: str,
    all_: Annotated[bool, Parameter(name="--all", negative="")] = False,
    quick: Annotated[bool, Parameter(negative="")] = False,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
    markdown: Path | None = None,
    false_alarm: float = 1e-3,
    seed: int | None = None,
    list_: Annotated[bool, Parameter(name="--list", negative="")] = False,
) -> int:
    """Try to refute the privacy claims, and show that they could have been refuted.

    Each row is refuted (with a witness), holds (with how much of the claim the noise was shown to
    spend, and how much its law accounts for) or cannot be seen: then a bug of the same kind would
    have been missed. Exits with 1 if a row does not hold.

    Parameters
    ----------
    names
        Classes, or classes with words of the names of their cases: PrivateFPL-tree-replace; see --list.
    all_
        Audit every legal combination of every public class: half an hour.
    quick
        A minute: every pair of values that two switches may have together, in few cases and with less noise.
    json_
        Print rows as JSON.
    markdown
        Write the table into this file, too, in place of the one between its lines ``<!-- audit -->`` and
        ``<!-- end of audit -->``.
    false_alarm
        Probability that a true claim is refuted, over all rows.
    seed
        Fixed keys, for a reproducible table.
    list_
        List the classes, or the cases of the names, and stop.
    """
    import json
    import time
    from collections import Counter
    from dataclasses import asdict

    from streampca.auditing import audit_named
    from streampca.auditing.suite import named

    if list_:
        cases = named(names)
        kinds = Counter(case.name.partition("-")[0] for case in cases)
        lines = [case.name for case in cases] if names else [f"{kind:<28}{n:>5} cases" for kind, n in kinds.items()]
        print("\n".join(lines))
        return 0
    started = time.process_time()
    if not (names or all_ or quick):
        raise BadParameterError(
            "name what to audit, e.g. 'streampca audit PrivateFPL', or pass --all or --quick; --list lists names"
        )
    report = audit_named(names, mode="quick" if quick else "standard", false_alarm=false_alarm, seed=seed)
    if markdown is not None:
        mode = "quick" if quick else "standard"
        spent = f"{time.process_time() - started:.0f} s of CPU time, false alarm {false_alarm:g}"
        _put_table(markdown, report.rows, f"{mode} audit of {len(report.rows)} rows, {spent}")
    if json_:
        print(json.dumps([asdict(row) for row in report.rows]))
    else:
        print(f"{'audit':<38} {'part':<11} {'claim':>16} {'seen':>7} {'accounted':>10}  verdict")
        for row in _grouped(report.rows):
            print(_audit_line(row))
        told = "everything holds" if report.holds else f"{sum(not row.holds for row in report.rows)} rows do not hold"
        print(
            f"\n{told}: {len(report.rows)} rows, {time.process_time() - started:.0f} s of CPU time, "
            f"false alarm {false_alarm:g} over all of them"
        )
    return 0 if report.holds else 1


_TABLE = "<!-- audit -->\n", "<!-- end of audit -->\n"


def _put_table(path: Path, rows: Sequence[Audit], what: str) -> None:
    """Write rows of an audit into a Markdown file. A leak check that holds has no row of its own beside others."""
    from datetime import UTC, datetime

    import streampca

    before, start, rest = path.read_text(encoding="utf-8").partition(_TABLE[0])
    _, end, after = rest.partition(_TABLE[1])
    if not end:
        raise BadParameterError(f"{path} has no lines {_TABLE[0]!r} and {_TABLE[1]!r}, in this order")
    rows = _grouped(rows)
    others = {row.subject.partition(" (")[0] for row in rows if row.part != "leak"}
    lines = [f"{datetime.now(UTC):%Y-%m-%d}, streampca {streampca.__version__}: {what}.", ""]
    lines += ["| audit | part | claim | seen | accounted | verdict |", "|---|---|---|---|---|---|"]
    for row in rows:
        if row.part != "leak" or row.subject.partition(" (")[0] not in others or not row.holds:
            verdict = f"{row.verdict}: {row.witness}" if row.witness else row.verdict
            lines.append(f"| {' | '.join([row.subject, row.part, *_figures(row), verdict])} |")
    path.write_text(before + start + "\n".join(["", *lines, "", ""]) + end + after, encoding="utf-8")


def _grouped(rows: Sequence[Audit]) -> list[Audit]:
    """Rows that do not hold, and of many that hold one a class, part and reason, with the least shares of each."""
    if len(rows) <= _FEW:
        return list(rows)
    groups: dict[tuple[str, str, str], list[Audit]] = {}
    for row in rows:
        kind = row.subject.partition("-")[0] if row.holds else row.subject
        groups.setdefault((kind, row.part, row.witness), []).append(row)
    found = []
    for (kind, _, _), of in groups.items():
        seen, accounted = (
            min((share for row in of if (share := getattr(row, name)) is not None), default=None)
            for name in ("seen", "accounted")
        )
        subject = f"{kind} ({len(of)} cases)" if len(of) > 1 else of[0].subject
        measure = of[0].measure if len({(row.measure, row.claim) for row in of}) == 1 else ""
        found.append(replace(of[0], subject=subject, measure=measure, seen=seen, accounted=accounted))
    return found


#: Rows of an audit up to which each is printed.
_FEW = 40


def _figures(row: Audit) -> tuple[str, str, str]:
    """Claim, share seen and share accounted for."""
    seen, accounted = ("" if share is None else f"{share:.1%}" for share in (row.seen, row.accounted))
    return f"{row.measure} = {row.claim:.4g}" if row.measure else "", seen, accounted


def _audit_line(row: Audit) -> str:
    """A row of the table."""
    claim, seen, accounted = _figures(row)
    verdict = row.verdict if row.holds else f"{row.verdict.upper()}: {row.witness}"
    return f"{row.subject:<38} {row.part:<11} {claim:>16} {seen:>7} {accounted:>10}  {verdict}"


def version() -> int:
    """Print the versions of streampca and of what it computes with."""
    import platform
    from importlib.metadata import version as of

    import streampca

    print(f"streampca {streampca.__version__}")
    packages = ", ".join(f"{name} {of(name)}" for name in ("numpy", "scipy", "cryptography"))
    print(f"Python {platform.python_version()}, {packages}")
    return 0
