"""``streampca release``: one private release of one table."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from streampca.cli import caution
from streampca.cli.reading import Reading, SourcePath
from streampca.cli.run import OutPath, Switch


def release(
    file: SourcePath,
    /,
    *,
    mechanism: str,
    epsilon: float | None = None,
    delta: float | None = None,
    n_components: Annotated[int | None, Parameter(name=["--n-components", "-k"])] = None,
    reading: Reading = Reading(),  # noqa: B008
    bounds: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    warmup: int | None = None,
    row_norm: float | None = None,
    on_bad_row: Literal["raise", "zero"] = "raise",
    center: bool | None = None,
    adjacency: Literal["zero-out", "replace"] | None = None,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative="")] = None,
    out: OutPath = Path("release.jsonl"),
    gram: bool = True,
    seed: int | None = None,
    ledger: Path | None = None,
    data_set: str | None = None,
    force: Switch = False,
) -> int:
    """Release the subspace of a whole table once.

    Holds the table in memory. A bad row stops it before anything is paid or released, unless
    --on-bad-row zero is given. Each release of the same rows spends the budget once more.

    Parameters
    ----------
    file
        CSV (also .gz, .zip) or Parquet file of numeric columns.
    mechanism
        gaussian, adaptive; with delta 0: adaptive-laplace, matrix-laplace; auto takes adaptive-laplace for few
        features, else adaptive; for rows on a subspace: exact-subspace (integers, --row-norm a power of two no row
        exceeds); or a class name.
    epsilon
        Privacy parameter.
    delta
        Privacy parameter, well below one over the number of rows, e.g. 1e-6. Left out for those with delta 0.
    n_components
        Dimension of the subspace. Left out, exact-subspace finds it.
    bounds
        Public ranges of the columns: lo:hi for all, name=lo:hi,... or a JSON file {"name": [lo, hi]}. Or private: the
        first rows spend their whole budget on finding them, and serve for nothing else. This needs delta > 0.
    warmup
        With --bounds private: number of these rows. Chosen from the budget and the size of the table, if left out.
    row_norm
        Longer rows are scaled onto the ball of this radius; 1, if left out. This or --bounds must be given.
    on_bad_row
        Stop at a row with missing or bad values, or take a zero row in its place.
    center
        Take the mean out, from the same private release. On by default, for the Gaussian mechanism.
    adjacency
        What one neighbour differs in: a row against the zero row, or against another row.
    set_
        Further parameter of the mechanism, as name=value.
    out
        File of the release, or - for standard output. Publishable; the format is that of streampca run.
    gram
        Write the private Gram matrix too, not only its subspace.
    seed
        Reproducible noise. For tests: not private against whoever knows the seed.
    ledger
        Ledger whose account of --data-set pays, or refuses. See streampca ledger budget.
    data_set
        Name of the data set in the ledger.
    force
        Overwrite an existing output file.
    """
    import numpy as np

    from streampca.advice import dimension_warnings, release_warnings, settings_warnings
    from streampca.bounds import NONE_GIVEN, PrivateBounds, read_bounds
    from streampca.cli.arguments import make_mechanism, missing_options
    from streampca.cli.live import Progress
    from streampca.cli.run import paying
    from streampca.cli.session import Ending, Files, closing, parameters_of_run, refuse_inputs
    from streampca.errors import BadParameterError, SourceError
    from streampca.mechanisms.adaptive_covariance import AdaptiveCovariance
    from streampca.mechanisms.adaptive_laplace import adaptive_mechanism
    from streampca.processors.tumbling import Tumbling
    from streampca.stream.stream import Stream

    started = time.perf_counter()
    common = {"n_components": n_components, "epsilon": epsilon, "delta": delta, "adjacency": adjacency}
    auto = mechanism == "auto" and bounds != "private"  # which are (epsilon, delta)-private themselves
    made = make_mechanism("adaptive" if mechanism == "auto" else mechanism, common, set_ or ())
    if bounds is None and row_norm is None:
        raise BadParameterError(NONE_GIVEN + missing_options(file, reading, on_bad_row, has_scale=False))
    private = bounds == "private"
    source = reading.open(file, None if bounds is None or private else read_bounds(bounds), on_bad_row)
    refuse_inputs(file, out)
    files = Files(out, gram=gram, force=force)
    with paying(ledger, data_set) as account:
        try:
            blocks = list(source.blocks())
        except SourceError as problem:
            raise SourceError(f"{problem}{missing_options(file, reading, on_bad_row, has_scale=True)}") from None
        if not blocks:
            raise SourceError(f"{file} has no rows; there is nothing to release")
        rows = np.concatenate(blocks)
        if auto and isinstance(made, AdaptiveCovariance):
            made = adaptive_mechanism(
                rows.shape[1], n_components=made.n_components, epsilon=made.epsilon, delta=made.delta,
                adjacency=made.adjacency,
            )  # fmt: skip
        algorithm = Tumbling(made, release_every=len(rows))
        told = settings_warnings(made.guarantee, len(rows)) + dimension_warnings(made.n_components, rows.shape[1])
        if private:
            wanted = PrivateBounds.of(algorithm.guarantee, warmup, len(rows))
            warmup = wanted.rows(rows.shape[1])
            told += wanted.warnings(rows.shape[1], len(rows))
        for text in told:
            caution(text)
        stream = Stream(
            algorithm, row_norm=1.0 if row_norm is None else row_norm, bounds="private" if private else None,
            warmup=warmup, on_bad_row=on_bad_row, center=algorithm.can_center if center is None else center,
            regret=None, ledger=account, seed=seed,
        )  # fmt: skip
        stream.engine.adopt(source)
        releases = stream.push_many(rows).releases  # checks all rows, then pays
        files.begin(stream.engine.processor.terms, parameters_of_run(stream, source))
        files.releases.add(releases)
        files.close()
        seconds, admitted = time.perf_counter() - started, stream.admission
        progress = Progress(
            stream.t, seconds, len(releases), admitted.bad_rows, None, release=releases[0], admitted=admitted
        )
        lines = closing(Ending(progress), stream, files, "" if account is None else account.remaining())
    print(*lines, sep="\n", file=sys.stderr)
    for text in release_warnings(releases[0]):
        caution(text)
    return 0
