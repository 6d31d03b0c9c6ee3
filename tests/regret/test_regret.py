import numpy as np
import pytest

import streampca as sp
from streampca.errors import BadParameterError, NoReleaseError, UsageError
from streampca.linalg.frequent_directions import FrequentDirections
from streampca.linalg.lattice import onto_ball
from streampca.linalg.memory import Rows
from streampca.regret import regret
from streampca.stream import replay


def stream(every: int | None = None, release_every: int = 1, **keywords: object) -> sp.Stream:
    processor = sp.PrivateFPL(n_components=2, epsilon=1.0, center=False, release_every=release_every)
    return sp.Stream(processor, seed=0, regret=sp.RegretLog(every=every), **{"row_norm": 1.0} | keywords)  # type: ignore[arg-type]


def some_rows(n: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((n, 5)) * np.array([0.5, 0.3, 0.1, 0.1, 0.1])


@pytest.mark.parametrize("row_norm", [1.0, 3.0])
def test_regret_is_opt_less_rewards(row_norm: float) -> None:
    s, rows = stream(row_norm=row_norm), some_rows(300)
    rewards = s.push_many(rows).rewards
    record = s.regret.now()
    rows = rows / np.maximum(1.0, np.linalg.norm(rows, axis=1) / row_norm)[:, None]
    opt = np.linalg.eigvalsh(rows.T @ rows)[-2:].sum()
    assert record.t == 300
    assert record.opt == pytest.approx(opt, rel=1e-4)
    assert record.reward == pytest.approx(rewards.sum())
    assert record.regret == record.opt - record.reward
    assert (record.average, record.average_bound) == (record.regret / 300, record.bound / 300)
    assert sp.RegretRecord.of(vars(record).values()) == record
    basis = s.engine.subspace().basis
    assert record.captured == pytest.approx(np.sum((rows @ basis) ** 2) / opt, rel=1e-4)
    assert record.regret <= record.bound <= record.opt


@pytest.mark.parametrize(
    ("d", "release_every", "first", "step"),
    [(5, 1, 1, 512), (5, 100, 1, 600), (600, 1, 512, 512), (600, 3000, 18000, 18000), (600, 10**6, 2**14, 2**14)],
)
def test_records_of_many_features_are_apart_by_what_they_cost(
    d: int, release_every: int, first: int, step: int
) -> None:
    s = stream(release_every=release_every, features=d)
    sums = sp.RegretLog().start(s.engine.new_processor(s.engine.now.admission))
    assert (sums.next, sums.history.step) == (first, step)


def test_unasked_records_are_sparse_and_do_not_depend_on_blocks() -> None:
    """An eigenvalue problem each: the first 3000 rows may not cost many times what later ones do."""
    rows, expected = some_rows(1700), [1, 2, 4, 8, 16, 32, 64, 128, 256, 520, 1040, 1560]  # at releases in the end
    histories = []
    for size in (1, 77, 1700):
        s = stream(release_every=20)
        for start in range(0, 1700, size):
            s.push_many(rows[start : start + size]) if size > 1 else s.push(rows[start])
            if start == size * (900 // size):
                again = stream(release_every=20)
                replay.restore(again.engine, replay.saved(s.engine)["state"], s.release, copied=False)
                s = again
        histories.append(s.regret.history)
    assert [record.t for record in histories[0]] == expected
    assert histories[0] == histories[1] == histories[2]


def test_an_unasked_history_thins_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regret, "_SPACING", 2)
    s = stream()
    s.push_many(some_rows(400))
    times = [record.t for record in s.regret.history]
    assert 64 <= len(times) <= 128
    assert times[:3] == [2, 6, 10]  # of 1, 2, 4, 6, 8, 10, ...
    assert times[-1] == 400
    assert set(np.diff(times)) == {4, 6}  # 6 where the dropped ones ended


def test_sketches_bound_what_they_are_of() -> None:
    """On rows that turn: what is seen first, and forgotten, is what the sketch must not lose."""
    rng, k, size = np.random.default_rng(1), 2, 8
    rows = onto_ball(np.concatenate([rng.normal(size=(60, 30)) * np.roll(np.geomspace(1, 0.01, 30), 7 * turn) / 3
                                     for turn in range(4)]))  # fmt: skip
    sketch, others = FrequentDirections(Rows(30), size), FrequentDirections(Rows(30), size)
    for start, stop in ((0, 1), (1, 33), (33, 200), (200, 240)):
        others = others.add(rows[start:stop])
    played = np.linalg.qr(rng.normal(size=(30, k)))[0]
    for count, row in enumerate(rows, 1):
        sketch = sketch.add(row[None])
        gram = rows[:count].T @ rows[:count]
        best, slack = np.linalg.eigvalsh(gram)[-k:].sum(), sketch.slack(k)
        assert sketch.top_sum(k) <= best + 1e-9
        assert best <= sketch.top_sum(k) + slack + 1e-9
        inside = np.sum((rows[:count] @ played) ** 2)
        assert sketch.captured(played) - 1e-9 <= inside <= sketch.captured(played) + slack + 1e-9
        left = np.linalg.eigvalsh(gram - sketch.rows.array.T @ sketch.rows.array)
        assert left[0] > -1e-9
        assert left[-1] < sketch.shrunk + 1e-9
        assert sketch.rows.count < 2 * size
    assert 0.0 < slack < best
    np.testing.assert_array_equal(sketch.rows.array, others.rows.array)
    assert (sketch.shrunk, sketch.energy) == (others.shrunk, others.energy)


def test_many_features_have_an_interval() -> None:
    d = 301
    rows = onto_ball(np.random.default_rng(2).normal(size=(90, d)) * np.r_[2.0, 1.0, np.full(d - 2, 0.02)] / 4.0)
    one, many, again = (sp.Stream(sp.Oja(n_components=1), row_norm=1.0, seed=1) for _ in range(3))
    for row in rows[:50]:
        one.push(row)
    replay.restore(again.engine, replay.saved(one.engine)["state"], one.release, copied=False)
    many.push_many(rows)
    again.push_many(rows[50:])
    record = again.regret.now()
    assert record == many.regret.now()
    best = np.linalg.eigvalsh(rows @ rows.T)[-1]
    assert record.opt <= best <= record.opt + record.slack
    assert 0.0 < record.slack < 0.2 * record.opt
    least, most = record.captured, many.engine.subspace().captured(rows.T @ rows) / best
    assert least <= most * (1.0 + 1e-12)  # equal, but for rounding, where the sketch lost nothing
    assert most <= 1.0
    assert many.regret.history[0].slack == 0.0
    with pytest.raises(UsageError, match="sketch"):
        many.regret.exact_gram()
    exact = sp.Stream(sp.PrivateFPL(n_components=1, epsilon=1.0, center=False, release_every=50), row_norm=1.0, seed=1)
    exact.push_many(rows[:3])
    assert exact.regret.now().slack == 0.0  # the processor holds the matrix


@pytest.mark.parametrize(("d", "times"), [(499, [1, 2, 4, 8]), (500, [])])
def test_records_of_many_features_wait(d: int, times: list[int]) -> None:
    made = sp.Stream(sp.Oja(n_components=1), row_norm=1.0, seed=1)
    made.push_many(np.full((10, d), 0.01))
    assert [record.t for record in made.regret.history] == times
    assert made.regret.now().t == 10


def test_nothing_is_known_before_the_first_row() -> None:
    with pytest.raises(NoReleaseError, match="no row has been seen"):
        stream().regret.now()
    with pytest.raises(NoReleaseError):
        stream().regret.exact_gram()
    with pytest.raises(BadParameterError, match="every=0"):
        sp.RegretLog(every=0)
