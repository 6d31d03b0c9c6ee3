"""``streampca check``."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from streampca.cli import inputs
from streampca.cli.files import OutputFile, refuse_inputs
from streampca.cli.messages import in_flags
from streampca.cli.options import Address, CheckOptions, Settings, SourceAddress, about, pairs, take
from streampca.errors import UsageError
from streampca.facade.check import check as check_table
from streampca.facade.pca import components_or_share
from streampca.privacy.budget import DELTA
from streampca.privacy.unit import columns_of
from streampca.rows.bounds import read_bounds
from streampca.sources.reading import Reading
from streampca.sources.tables import open_cells

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
    if isinstance(file, Address):
        raise UsageError(f"{file.name}: check reads a whole table. Give the path of a regular file, not a topic")
    settings = inputs.text_options(options.reading())
    if others := settings.keys() - {"format", *vars(Reading())} | settings.keys() & {"follow"}:
        raise UsageError(f"--read {min(others)}: it does not apply to check, which reads a whole file")
    kind, reading = settings.pop("format", None), Reading(**settings)
    k = 2 if options.n_components is None else components_or_share(options.n_components)[0]
    bounds: Any = options.bounds if options.bounds in (None, "private") else read_bounds(options.bounds)
    columns = None if options.columns == "all" else inputs.chosen_columns(options.columns, options.reading())
    if columns is None and isinstance(bounds, dict):
        columns = list(bounds)
    is_gaussian = options.mechanism in (None, "gaussian", "GaussianCovariance")  # only its noise is predicted
    unit = inputs.unit_of(options, take(Settings, pairs(options.set_), "unit", others=True))
    chosen = None if columns is None else [*dict.fromkeys((*columns, *columns_of(unit)))]
    table = open_cells(file, chosen, reading, kind)
    report = check_table(
        table, columns=columns, bounds=bounds, row_norm=options.row_norm, n_components=k, limit=options.limit,
        epsilon=options.epsilon if is_gaussian else None, adjacency=options.adjacency or "zero-out",
        delta=options.delta if is_gaussian and options.delta is not None else DELTA,
        center=options.center is not False, unit=unit,
    )  # fmt: skip
    if options.write_bounds is not None and report.used:
        refuse_inputs(file, options.write_bounds)
        with closing(OutputFile(options.write_bounds, force=options.force)) as out:
            out.write(json.dumps({name: [None, None] for name in report.used}, ensure_ascii=False, indent=1) + "\n")
    if report.used and report.rows:
        options = replace(options, n_components=min(k, len(report.used)))
        report = replace(report, proposal=_command(file, options, report.used, table.names))
    print(replace(report, notes=tuple(map(in_flags, report.notes))))
    return 0


def _command(file: Path, options: CheckOptions, used: Sequence[str], header: Sequence[str]) -> str:
    """Return the command of a release with the options that are given, and LOW:HIGH for ranges that are not."""
    # A comma separates names and ranges, a sign separates the two, and a whole number may be a position.
    can_spell = all(name == name.strip() and not set(name) & set(",=") and not name.isdecimal() for name in used)
    columns = options.columns or ",".join(used if can_spell else [str(header.index(name) + 1) for name in used])
    first, given = "", str(options.write_bounds or options.bounds or "")
    if options.row_norm is not None:
        scale = ["--columns", columns, "--row-norm", str(options.row_norm)]
    elif given:
        # Ranges by name choose the columns, too.
        has_names = options.write_bounds is not None or "=" in given or given.endswith(".json")
        scale = [*([] if has_names else ["--columns", columns]), "--bounds", given]
    elif can_spell and len(used) <= _INLINE:
        scale = ["--bounds", ",".join(f"{name}=LOW:HIGH" for name in used)]
    else:
        chosen = [] if options.columns is None else ["--columns", columns]
        scale = ["--bounds", "ranges.json"]
        first = shlex.join(["streampca", "check", str(file), *chosen, "--write-bounds", scale[1]]) + "\n"
    repeated = {
        # Only the default protects people.
        "-k": options.n_components, "--mechanism": options.mechanism if options.unit is None else None,
        "--epsilon": options.epsilon or 1, "--unit": options.unit, "--delta": options.delta,
        "--adjacency": options.adjacency,
    }  # fmt: skip
    words = [str(word) for flag, value in repeated.items() if value is not None for word in (flag, value)]
    words += [word for text in options.read for word in ("--read", text)]
    words += [word for text in options.set_ for word in ("--set", text)]
    words += [] if options.center is None else ["--center" if options.center else "--no-center"]
    return f"{first}{shlex.join(['streampca', 'pca', str(file), *words])} \\\n  {shlex.join(scale)}"
