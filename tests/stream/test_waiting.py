"""Single rows wait up to the next release and are absorbed together: nobody can tell, and reading absorbs nothing."""

from itertools import pairwise

import numpy as np
import pytest

import streampca as sp
from streampca.errors import BadRowError


def stream(every: int = 1, solver: str = "tracking", n: int = 1000, **options: object) -> sp.Stream:
    algorithm = sp.PrivateFPL(
        n_components=2, epsilon=1.0, center=False, horizon=n, release_every=every, solver=solver,  # type: ignore[arg-type]
    )  # fmt: skip
    return sp.Stream(algorithm, row_norm=1.0, **({"seed": 3, "regret": sp.RegretLog(every=n)} | options))  # type: ignore[arg-type]


ROWS = np.random.default_rng(0).normal(size=(400, 6))


def test_rows_wait_up_to_the_next_record_and_not_without_end() -> None:
    recorded = stream(every=100, regret=sp.RegretLog(every=30))
    for row in ROWS[:30]:
        recorded.push(row)
    assert recorded.engine.processor.t == 30
    assert [record.t for record in recorded.regret.history] == [30]
    long = stream(every=1000, regret=None)
    absorbed = []
    for row in np.tile(ROWS, (2, 1)):
        long.push(row)
        absorbed.append(long.engine.processor.t)
        assert 0 <= long.t - absorbed[-1] < 256
    assert max(after - before for before, after in pairwise(absorbed)) == 256


@pytest.mark.parametrize("look", [
    lambda s: s.release, lambda s: s.engine.subspace(), lambda s: s.regret.now(), lambda s: s.regret.history,
    lambda s: s.regret.exact_gram(), lambda s: s.admission.bad_rows, lambda s: s.engine.processor, lambda s: s.t, repr,
])  # fmt: skip
def test_reading_absorbs_nothing(look) -> None:  # type: ignore[no-untyped-def]
    looked_at, other = stream(every=40), stream(every=40)
    for t, row in enumerate(ROWS[:70], start=1):
        looked_at.push(row)
        look(looked_at)
        assert (looked_at.t, looked_at.engine.processor.t) == (t, t // 40 * 40)
    other.push_many(ROWS[:70])
    for row in ROWS[70:80]:
        last = looked_at.push(row).release
    assert last is not None
    assert last.to_json() == other.push_many(ROWS[70:80]).releases[0].to_json()


@pytest.mark.parametrize("algorithm", [
    sp.PrivateFPL(n_components=2, epsilon=1.0, center=False, release_every=50),
    sp.SlidingWindowPCA(window=60, n_components=2, epsilon=1.0, center=False, release_every=50),
])  # fmt: skip
def test_regret_now_is_the_same_with_rows_that_wait(algorithm: sp.Algorithm) -> None:
    single, block = (sp.Stream(algorithm, row_norm=1.0, seed=3, regret=sp.RegretLog(every=7)) for _ in range(2))
    for t, row in enumerate(ROWS[:120], start=1):
        single.push(row)
        block.push_many(row[None])
        assert single.regret.now() == block.regret.now()
        assert single.regret.now().t == t
    assert single.regret.history == block.regret.history
    assert single.engine.processor.t < block.engine.processor.t == 120
    np.testing.assert_array_equal(single.regret.exact_gram(), block.regret.exact_gram())


def test_a_row_that_waits_is_checked_at_once_and_is_not_the_callers() -> None:
    waiting, block = stream(every=20), stream(every=20)
    row = np.empty(6)
    for t in range(20):
        if t == 7:
            with pytest.raises(BadRowError, match="row 8: 5 values"):
                waiting.push([0.0, 0.0, 0.0, 0.0, 0.0])
            assert waiting.t == 7
        row[:] = ROWS[t]
        release = waiting.push(row).release
    assert release is not None
    assert release.to_json() == block.push_many(ROWS[:20]).releases[0].to_json()
