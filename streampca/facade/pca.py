"""`sp.pca`: one private release of one whole table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from streampca.conversion import as_block
from streampca.errors import BadParameterError, SourceError
from streampca.linalg.counts import check_components
from streampca.linalg.scale import Bounds, check_scale
from streampca.mechanisms.base import Mechanism
from streampca.mechanisms.covariance import GaussianCovariance
from streampca.privacy.budget import DELTA, Adjacency
from streampca.privacy.guarantee import Account
from streampca.privacy.unit import Person, columns_of, names_of
from streampca.processors.private_fpl import PrivateFPL
from streampca.release.release import Release
from streampca.rows.admission import Shares
from streampca.rows.owners import Names, check_features, owned
from streampca.rows.protocol import RowSource, as_source
from streampca.rows.report import tell_curator
from streampca.sources.files import open_rows
from streampca.sources.reading import Reading
from streampca.sources.tables import choose_columns, options_of
from streampca.stream.feed import batches
from streampca.stream.stream import Stream


def pca(
    data: Any, n_components: int | float, epsilon: float, *, delta: float = DELTA,
    bounds: Bounds | Literal["private"] | None = None, row_norm: float | None = None,
    columns: Sequence[str | int] | None = None, center: bool = True, adjacency: Adjacency = "zero-out",
    on_missing: Literal["bad", "cell"] = "bad", missing_rates: Shares = None, correct: bool = True,
    account: Account | None = None, seed: int | None = None, read: Reading | None = None,
    unit: Person | str | tuple[str, ...] | None = None,
) -> Release:  # fmt: skip
    """Release the principal components of one whole table.

    For rows that arrive one by one, use `Stream`. For what a release would meet before anything is spent, use `check`.

    Parameters
    ----------
    data : path, frame, Arrow table, sparse matrix, array or list of rows
        The whole table. A path is that of a regular file, CSV, TSV, NDJSON or Parquet, or a pattern of files.
    n_components : int or float
        Number of components; or a share of the variance in (0, 1), from which it is chosen after the release, so that
        the choice costs no privacy.
    epsilon, delta : float
        Budget of the release.
    bounds : pair, mapping or "private", default=None
        Public range of each column: ``{name: (low, high)}``, one ``(low, high)`` for all, or arrays ``(lows, highs)``.
        ``"private"`` finds the ranges from the first rows, at the price of their budget.
    row_norm : float, default=None
        Length of a long row, in place of ``bounds``: longer rows are shortened. Exactly one of the two is given, and
        neither may be computed from the rows.
    columns : sequence of str or int, default=None
        Names or positions of the columns to use. By default those that ``bounds`` names; else all, where the names and
        types of columns do not depend on the rows: arrays, Arrow tables, polars frames and Parquet files.
    center : bool, default=True
        Components about the private mean, of the same release. Without it they are about the middle of the ranges.
    adjacency : {"zero-out", "replace"}, default="zero-out"
    on_missing : {"bad", "cell"}, default="bad"
        ``"cell"`` fills missing cells with the middle of their bounds, and corrects mean and components by the shares
        of cells present; with ``missing_rates`` and ``correct`` as in `Stream`.
    missing_rates : "private", number, sequence or mapping, default=None
    correct : bool, default=True
    account : Account, default=None
        ``Ledger(file).account(data_set)``, which pays before the first row is absorbed.
    seed : int, default=None
        For tests: not private against a reader who knows it.
    read : Reading, default=None
        How a file is read.
    unit : Person, str or tuple of str, default=None
        Column of the person of each row, or several, to protect all rows of a person together
        (`streampca.rows.people`). It is no feature. The table is then held in memory. With private bounds, people in
        the first rows have one vote each and count no further, and the rows of others count as in `PrivateFPL`.

    Returns
    -------
    Release
        Publishable: components, variances, mean, pictures and a file, all post-processing. Nothing is spent if an
        argument is refused, a file cannot be opened or has no rows, or the account does not cover the budget.

    Notes
    -----
    *Guarantee.* (epsilon, delta)-DP for one row: that of `PrivateFPL` with one release after all rows, which is the
    Gaussian mechanism. A cell that is no number, or missing with ``on_missing="bad"``, makes its row absent: it counts
    for nothing, also in the private mean, and stops nothing. What happened to the rows is a record of the logger
    ``streampca.curator``.

    Examples
    --------
    >>> rows = [{"age": 20, "height": 1.6}, {"age": 35, "height": 1.8}, {"age": 50, "height": 1.7}] * 1000
    >>> release = sp.pca(rows, 1, epsilon=1.0, bounds={"age": (0, 100), "height": (1, 2)})
    >>> release.components.shape
    (1, 2)
    """
    check_scale(bounds, row_norm)
    k, share = components_or_share(n_components)
    if columns is None and isinstance(bounds, Mapping):
        columns = [str(name) for name in bounds]
    person = Person.of(unit)
    check_features(columns, columns_of(person))
    names: Names | None = None
    if (options := options_of(data, read)) is None:
        if person is not None:
            data, names = owned(person, as_block(data), otherwise="a frame with such a column")
        table, features = choose_columns(data, columns)
        rows, n = as_source(table, features) or table, table.shape[0]
    else:
        if person is not None and not person.columns:
            raise BadParameterError("unit.column", person.column, "the name of a column of the file")
        rows = open_rows(data, columns=columns, **options | ({} if person is None else {"beside": person.columns}))
        features, n = rows.features, rows.count_rows() or 0
    check_components(k, len(features))
    if not n:
        raise SourceError(data, "no rows; there is nothing to release")
    if person is not None and bounds != "private":
        mechanism = GaussianCovariance(
            n_components=k, epsilon=epsilon, delta=delta, adjacency=adjacency, center=center, unit=person
        )
        # All rows of a person are weighted together, so the table is held.
        parts = rows.blocks_with(person.columns) if names is None else [(_values(rows), ())]
        whole = release_of_people(
            mechanism, features, parts, names, bounds=bounds, row_norm=row_norm, seed=seed, account=account,
            on_missing=on_missing, missing_rates=missing_rates, correct=correct,
        )  # fmt: skip
        return whole if share is None else whole.holding(share)
    algorithm = PrivateFPL(
        n_components=k, epsilon=epsilon, delta=delta, adjacency=adjacency, center=center, horizon=n, release_every=n,
        unit=person,
    )  # fmt: skip
    stream = Stream(
        algorithm, bounds=bounds, row_norm=row_norm, features=features, regret=None, seed=seed, account=account,
        on_missing=on_missing, missing_rates=missing_rates, correct=correct,
    )  # fmt: skip
    if isinstance(rows, RowSource) and names is None:
        for batch in batches(stream.engine, rows, limit=n):  # not the rows of a file that has grown since the count
            stream.engine.push_many(batch.rows, names=batch.names)
    else:
        stream.push_many(_values(rows), ... if names is None else names)
    tell_curator(stream.admission)
    release = stream.release or stream.finish()
    if release is None:
        raise SourceError(None, f"the file had {n} rows when they were counted, and has {stream.t} now")
    return release if share is None else release.holding(share)


def release_of_people(
    mechanism: Mechanism, features: Sequence[str], parts: Iterable[tuple[Any, Sequence[Any]]],
    names: Names | None = None, **settings: Any,
) -> Release:  # fmt: skip
    """Release rows by a mechanism with a unit; ``parts`` are blocks with the columns of the unit, or have ``names``."""
    check_features(features, columns_of(mechanism.unit))  # chosen by position
    values, cells = zip(*parts, strict=True)
    names = [name for part in cells for name in names_of(part)] if names is None else names
    return mechanism.release(pd.DataFrame(np.concatenate(values), columns=[*features]), person=names, **settings)


def _values(rows: Any) -> Any:
    """Return the rows of a table as one block."""
    return np.concatenate([*rows.blocks()]) if isinstance(rows, RowSource) else rows


def components_or_share(n_components: Any) -> tuple[Any, float | None]:
    """Return the number of components to release, and the share of the variance that is to replace it, if any."""
    if not isinstance(n_components, (float, np.floating)) or float(n_components).is_integer():
        return n_components if isinstance(n_components, (int, np.integer)) else int(n_components), None
    if not 0.0 < n_components < 1.0:
        raise BadParameterError("n_components", n_components, "an integer, or a share of the variance in (0, 1)")
    return 1, float(n_components)
