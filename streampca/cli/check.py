"""``streampca check``."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from streampca.cli import inputs
from streampca.cli.algorithms import COMMON, make_mechanism
from streampca.cli.files import OutputFile, refuse_inputs
from streampca.cli.options import Address, CheckOptions, Settings, SourceAddress, about, pairs, take
from streampca.errors import UsageError
from streampca.facade.check import Scale, check as check_table
from streampca.facade.pca import components_or_share
from streampca.rows.bounds import read_bounds
from streampca.sources.columns import open_columns
from streampca.sources.reading import Reading
from streampca.views.check import filled

#: Most columns whose ranges stand in the proposed command; those of more columns fill a file.
_INLINE = 6


def check(
    file: Annotated[SourceAddress, about("CSV, TSV, NDJSON (also .gz, .zip) or Parquet file, or a pattern of files.")],
    /,
    *,
    options: CheckOptions = CheckOptions(),  # noqa: B008
) -> int:
    """Report what a release would meet, and propose its command. Spends nothing.

    Curator only. Lists columns with their types and gaps and counts complete rows;
    with --bounds or --row-norm it adds what would be clipped, with --epsilon the
    noise. The proposed command has LOW:HIGH in place of ranges: rows must not
    decide them. The exit status is 0 for any rows.
    """
    if isinstance(file, Address) or str(file) == "-":
        name = file.name if isinstance(file, Address) else "-"
        raise UsageError(f"{name}: check reads a whole table. Give the path of a regular file, not a pipe or a topic")
    reading, given = options.reading(), pairs(options.set_)
    settings = inputs.text_options(reading)
    for name in ("follow", "rate", "query", "cursor"):
        if settings.pop(name, None) is not None:
            raise UsageError(f"--read {name}: it does not apply to check, which reads a whole file")
    k = 2 if options.n_components is None else components_or_share(options.n_components)[0]
    is_gaussian = options.mechanism in (None, "gaussian", "GaussianCovariance")
    take(Settings, given, "bounds", "out", others=True)
    delta = 1e-6 if options.delta is None and is_gaussian else options.delta
    if options.epsilon is not None:  # all that a release would refuse of its mechanism
        common = {name: getattr(options, name, None) for name in COMMON} | {"n_components": k, "delta": delta}
        make_mechanism(
            "gaussian" if options.mechanism is None else options.mechanism.replace("auto", "adaptive"), common, given
        )
    if options.write_bounds is not None:
        refuse_inputs(file, options.write_bounds)
    with closing(OutputFile(options.write_bounds, force=options.force)) as written:
        bounds: Scale = None
        if options.bounds is not None:
            bounds = "private" if options.bounds == "private" else read_bounds(options.bounds)
        columns = None if options.columns == "all" else inputs.chosen_columns(options.columns, reading)
        if columns is None and isinstance(bounds, dict):
            columns = list(bounds)
        kind = settings.pop("format", None)
        table = open_columns(file, columns, Reading(**settings), kind)
        report = check_table(
            table, columns=columns, bounds=bounds, row_norm=options.row_norm, n_components=k,
            epsilon=options.epsilon if is_gaussian else None, limit=options.limit, delta=delta or 1e-6,
            adjacency=options.adjacency or "zero-out", center=options.center is not False,
        )  # fmt: skip
        if options.epsilon is not None and not is_gaussian:
            note = f"The noise is predicted for --mechanism gaussian only; streampca plan has {options.mechanism}."
            report = replace(report, notes=(*report.notes, note))
        if options.write_bounds is not None and report.used:
            lines = (f"  {json.dumps(name, ensure_ascii=False)}: [null, null]" for name in report.used)
            written.write("{\n" + ",\n".join(lines) + "\n}\n")
    if report.used and report.rows:
        header = table.names if columns is None else ()
        options = replace(options, n_components=min(k, len(report.used)))
        report = replace(report, proposal=_command(file, options, report.used, header))
    print(report)
    return 0


def _command(file: Path, options: CheckOptions, used: Sequence[str], header: Sequence[str]) -> str:
    """Return the command of a release with the options that are given, and LOW:HIGH for ranges that are not.

    ``header`` has the names of all columns, if they are known.
    """
    # A comma separates names and ranges, a sign separates the two, and a whole number may be a position.
    can_spell = all(name == name.strip() and not set(name) & set(",=") and not name.isdecimal() for name in used)
    columns, first, scale = options.columns, "", ["--bounds", str(options.bounds)]
    if columns is None:
        columns = ",".join(used if can_spell or not header else [str(header.index(name) + 1) for name in used])
    if options.row_norm is not None:
        scale = ["--row-norm", _number(options.row_norm)]
    elif options.write_bounds is not None:
        scale[1] = str(options.write_bounds)
    elif options.bounds is None and can_spell and len(used) <= _INLINE:
        scale[1] = ",".join(f"{name}=LOW:HIGH" for name in used)
    elif options.bounds is None:
        scale[1] = "ranges.json"
        chosen = [] if options.columns is None else ["--columns", columns]
        first = shlex.join(["streampca", "check", str(file), *chosen, "--write-bounds", scale[1]]) + "\n"
    named = "=" in scale[1]  # ranges by name choose the columns, too
    parts = [
        ["streampca", "pca", str(file)], ["-k", _number(options.n_components or 2)],
        *([] if options.mechanism is None else [["--mechanism", options.mechanism]]),
        ["--epsilon", _number(options.epsilon or 1.0)],
        *([] if options.delta is None else [["--delta", _number(options.delta)]]),
        *(["--read", text] for text in options.read), *(["--set", text] for text in options.set_),
        *([] if options.adjacency is None else [["--adjacency", options.adjacency]]),
        *([] if options.center is None else [["--center" if options.center else "--no-center"]]),
        *([] if named else [["--columns", columns]]), scale,
    ]  # fmt: skip
    return first + filled(map(shlex.join, parts), " \\\n  ")


def _number(value: float) -> str:
    return repr(float(value)).removesuffix(".0")
