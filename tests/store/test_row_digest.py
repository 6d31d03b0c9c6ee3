import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from runs import ROWS as STORED, begin

import streampca as sp
from streampca.errors import UsageError
from streampca.store.records import decode, encode
from streampca.store.row_digest import HEAD, PassedRows, TakenRows, words_of

KEY = b"k" * 32
ROWS = np.round(np.random.default_rng(0).normal(size=(9000, 3)) * 2**10) / 2**20


def taken(sizes, *, resumes=()):
    found = TakenRows().resumed()
    for i, size in enumerate(sizes):
        if i in resumes:
            found = TakenRows(*decode(encode(found))).resumed()
        found = found.after(KEY, [(size, words_of(ROWS[found.rows : found.rows + size]))])
    return found


def passes(found, given, size=1000):
    check = PassedRows(KEY, found)
    for first in range(0, found.rows, size):
        check.take(given[first : min(first + size, found.rows)])


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.sampled_from([1, 63, 64, 300, 1100, 4096]), min_size=1, max_size=3),
    st.sets(st.integers(0, 3)),
    st.integers(1, 8192),
)
def test_the_same_rows_pass_however_they_are_cut(sizes, resumes, size):
    sizes = sizes if sum(sizes) <= len(ROWS) else [4096, 300]
    found = taken(sizes, resumes=resumes)
    passes(found, ROWS, size)
    assert found.total == taken([sum(sizes)]).total


def test_rows_that_differ_or_are_permuted_do_not_pass():
    others = [ROWS[:5000][::-1], ROWS[:5000, ::-1], ROWS[1:5001]]
    for at in (0, 63, 4095, 4096, 4999):
        others.append(ROWS.copy())
        others[-1][at, 1] += 2.0**-20
    for other in others:
        with pytest.raises(UsageError, match="not the rows that the run has taken"):
            passes(taken([3000, 2000], resumes={1}), other)


def test_sums_of_rows_are_not_known():
    found = taken([10]).after(KEY, [(0, None)])
    assert found.known
    found = found.after(KEY, [(5, None)])
    assert (found.known, found.rows) == (False, 15)
    passes(found, ROWS + 1.0)


def test_rows_given_twice_are_recognised():
    check = PassedRows(KEY, taken([HEAD, 100, 30], resumes={1, 2}))
    for first in (0, HEAD):
        with pytest.raises(UsageError, match=f"from row {first + 1} on, which would count twice"):
            check.check_next(ROWS[first : first + 1000])
    for others in (ROWS[194:], ROWS[164:], np.zeros((HEAD, 3)), ROWS[: HEAD - 1]):  # equal rows and few are no sign
        check.check_next(others)


def test_a_store_keeps_what_its_rows_were(tmp_path):
    store, stream = begin(tmp_path / "run.db")
    for row in STORED[:150]:
        stream.push(row)
    stream.push_many(STORED[150:500])
    store.close()
    for upto in (500, 700):
        with sp.Store(tmp_path / "run.db") as store:
            stream = sp.Stream.resume(store)
            admitted = stream.engine.now.admission.block(STORED[:upto], 1)[0]
            store.passed_rows().take(admitted)
            with pytest.raises(UsageError, match="another file"):
                store.passed_rows().take(np.ascontiguousarray(admitted[::-1]))
            stream.push_many(STORED[upto : upto + 200])
