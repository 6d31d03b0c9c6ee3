import numpy as np
import pytest

import streampca as sp
from streampca.errors import BadParameter, NoRelease
from streampca.regret import KEPT


def stream(every: int | None = None, **keywords: object) -> sp.Stream:
    processor = sp.PrivateFPL(n_components=2, epsilon=1.0, delta=1e-6)
    return sp.Stream(processor, seed=0, regret=sp.RegretLog(every=every), **keywords)  # type: ignore[arg-type]


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
    assert record.average == record.regret / 300
    basis = s.subspace.basis
    assert record.captured == pytest.approx(np.sum((rows @ basis) ** 2) / opt, rel=1e-4)
    assert record.regret <= record.bound <= record.opt


def test_records_are_kept_as_often_as_asked() -> None:
    s = stream(every=7)
    s.push_many(some_rows(50))
    assert [record.t for record in s.regret.history] == [7, 14, 21, 28, 35, 42, 49]


def test_an_unasked_history_thins_itself() -> None:
    s = stream()
    s.push_many(some_rows(3 * KEPT))
    times = [record.t for record in s.regret.history]
    assert len(times) <= KEPT + 1
    assert times == list(range(times[0], 3 * KEPT + 1, times[0]))


def test_nothing_is_known_before_the_first_row() -> None:
    with pytest.raises(NoRelease, match="no row has been seen"):
        stream().regret.now()
    with pytest.raises(NoRelease):
        stream().regret.exact_gram()
    with pytest.raises(BadParameter, match="every=0"):
        sp.RegretLog(every=0)


def test_the_exact_log_reveals_rows() -> None:
    """Why regret is the curator's: neighbours give different rewards, with certainty."""
    rows = some_rows(40)
    neighbour = rows.copy()
    neighbour[20] = 0.0
    a, b = stream(), stream()
    a.push_many(rows)
    b.push_many(neighbour)
    assert a.regret.history[20].reward - a.regret.history[19].reward > 0.0
    assert b.regret.history[20].reward == b.regret.history[19].reward
