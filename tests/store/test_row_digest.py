import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streampca as sp
from streampca.errors import BadParameterError
from streampca.store import Store
from streampca.store.row_digest import HEAD, PART, PassedRows, Sessions, TakenRows

KEY = b"k" * 32
ROWS = np.round(np.random.default_rng(0).normal(size=(2 * PART + 300, 3)) * 2**10) / 2**20


def taken(sizes, *, resumes=()):
    kept, rows = TakenRows(KEY, Sessions(), 0), 0
    for i, size in enumerate(sizes):
        if i in resumes:
            kept = TakenRows(KEY, kept.sessions(), rows)
        kept = kept.after([ROWS[rows : rows + size]])
        rows += size
    return kept.sessions(), rows


def passes(kept, rows, given, size=1000):
    check = PassedRows(KEY, kept, rows)
    for first in range(0, rows, size):
        check.take(given[first : min(first + size, rows)])


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.sampled_from([1, 63, 64, 300, 1100, PART]), min_size=1, max_size=3),
    st.sets(st.integers(0, 3)),
    st.integers(1, 2 * PART),
)
def test_the_same_rows_pass_however_they_are_cut(sizes, resumes, size):
    sizes = sizes if sum(sizes) <= len(ROWS) else [PART, 300]
    kept, rows = taken(sizes, resumes=resumes)
    passes(kept, rows, ROWS, size)


def test_one_block_and_many_have_one_digest():
    assert taken([5000])[0] == taken([1, 62, 1, 4000, 32, 904])[0]


@pytest.mark.parametrize("at", [0, 63, 4095, 4096, 4999])
def test_a_row_that_differs_does_not_pass(at):
    kept, rows = taken([3000, 2000], resumes={1})
    other = ROWS[:rows].copy()
    other[at, 1] += 2.0**-20
    with pytest.raises(BadParameterError, match="not the rows that the run has taken"):
        passes(kept, rows, other)


def test_permuted_rows_do_not_pass():
    kept, rows = taken([200])
    for other in (ROWS[:rows][::-1], ROWS[:rows, ::-1], ROWS[1 : rows + 1]):
        with pytest.raises(BadParameterError, match="another file, order or column"):
            passes(kept, rows, np.ascontiguousarray(other))


def test_sums_of_rows_are_not_known():
    kept = TakenRows(KEY, Sessions(), 0).after([ROWS[:10], None]).sessions()
    passes(kept, 10, ROWS + 1.0)
    assert not TakenRows(KEY, kept, 10).sessions().known


def test_rows_given_twice_are_recognised():
    kept, rows = taken([HEAD, 100, 30], resumes={1, 2})
    check = PassedRows(KEY, kept, rows)
    for first in (0, HEAD):
        with pytest.raises(BadParameterError, match=f"from row {first + 1} on, which would count twice"):
            check.check_next(ROWS[first : first + 1000])
    check.check_next(ROWS[rows:])
    check.check_next(np.zeros((HEAD, 3)))  # rows that are all the same are no sign
    check.check_next(ROWS[: HEAD - 1])


def test_a_store_keeps_what_its_rows_were(tmp_path):
    path = tmp_path / "run.db"
    rows = np.random.default_rng(1).normal(size=(900, 4))
    algorithm = sp.PrivateFPL(n_components=1, epsilon=1.0, delta=1e-6, horizon=1000, release_every=100)
    with Store(path) as store:
        stream = sp.Stream(algorithm, store=store)
        for row in rows[:150]:
            stream.push(row)
        stream.push_many(rows[150:500])
    for upto in (500, 700):
        with Store(path) as store:
            stream = sp.Stream.resume(store)
            assert stream.t == upto
            for given, right in ((rows, True), (rows[::-1], False)):
                check = store.passed_rows()
                admitted = stream.engine.now.admission.block(given[:upto], 1)[0]
                if right:
                    check.take(admitted)
                else:
                    with pytest.raises(BadParameterError, match="another file"):
                        check.take(admitted)
            stream.push_many(rows[upto : upto + 200])
