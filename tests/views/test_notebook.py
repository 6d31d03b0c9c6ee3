"""What notebooks show: cards that are told apart by who may see them, frames, and a card that keeps up."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest

import streampca as sp
from streampca.auditing.instrument import Report
from streampca.errors import BadParameterError, UsageError
from streampca.planning.plan import Plan

CURATOR = "Curator only"


def stream(**more: Any) -> sp.Stream:
    algorithm = sp.PrivateFPL(n_components=2, epsilon=1.0, delta=1e-6, release_every=50, publish_regret=True)
    return sp.Stream(algorithm, row_norm=1.0, regret=sp.RegretLog(every=100), seed=1, **more)


ROWS = np.random.default_rng(0).normal(size=(500, 4)) * [0.5, 0.3, 0.1, 0.1]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sp.Stream]:
    with sp.Ledger(tmp_path_factory.mktemp("run") / "book.db") as ledger:
        ledger.set_budget("rows", sp.Budget(3.0, 1e-5))
        made = stream(features=["<a>", "b", "c", "d"], account=ledger.account("rows"))
        assert made._repr_html_() is None
        made.push_many(ROWS)
        for words in ("captured, exactly", "do not publish", ledger.account("rows").remaining()):
            assert words in made._repr_html_()
        yield made


def test_what_is_exact_says_whose_it_is(run: sp.Stream) -> None:
    assert run.release is not None
    for shown, is_exact in ((run, 1), (run.regret, 1), (run.regret.now(), 1), (run.release, 0), (run.guarantee, 0)):
        assert (CURATOR in shown._repr_html_()) == bool(is_exact)
    assert "&lt;a&gt;" in run.release._repr_html_()
    assert "<a>" not in run.release._repr_html_()
    assert "(1, 1e-06)-DP for one row" in run.release._repr_html_()
    assert "zero-out" in run.guarantee._repr_html_()
    assert "no guarantee" in sp.Guarantee.none("it is exact")._repr_html_()


def test_the_card_of_a_release_has_one_scree_without_matplotlib(run: sp.Stream) -> None:
    shown = run.release._repr_html_()
    (svg,) = re.findall(r"<svg.*?</svg>", shown)
    bars = ElementTree.fromstring(svg).findall("{*}rect")
    # Beyond the components nothing is tested: those bars are pale, and say nothing of the noise.
    k, clear = run.release.n_components, run.release.n_clear
    assert [bar.get("fill") == "none" for bar in bars] == [clear <= i < k for i in range(4)]
    assert [bar.get("opacity") for bar in bars] == ["0.7"] * k + ["0.25"] * (4 - k)
    assert ("hollow" in shown) == (clear < k)
    heights = [float(bar.get("height") or "nan") for bar in bars]
    values = np.linalg.eigvalsh(run.release.gram)[::-1]
    np.testing.assert_allclose(heights, 80.0 * np.maximum(values / values[0], 0.0), atol=0.1)
    assert "<svg" not in sp.Guarantee.none("it is exact")._repr_html_()
    code = "import sys, streampca as sp; sp.pca([[.1, .2]] * 99, 1, 1.0, row_norm=1.0)._repr_html_(); "
    code += "sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_histories_are_frames(run: sp.Stream) -> None:
    exact = run.regret.to_frame()
    assert exact["t"].tolist() == [100, 200, 300, 400, 500]
    assert exact["regret"].iloc[-1] == run.regret.now().regret
    assert pl.from_dataframe(exact[["t", "regret"]])["t"].to_list() == exact["t"].tolist()
    assert run.private_regret.to_frame()["t"].tolist() == [record.t for record in run.private_regret.history]
    assert list(stream().regret.to_frame().columns) == list(exact.columns)


def test_plans_and_audits_are_tables() -> None:
    made: Plan = sp.plan(n_rows=5_000, n_features=4, n_components=2, epsilon=1.0, spectrum="steep")
    assert len(made.to_frame()) == len(made.predictions)
    assert "Use " in made._repr_html_()
    report = Report((
        sp.Audit("PrivateFPL", "gram", "holds", "mu", 0.24, 0.95, 1.0),
        sp.Audit("Oja", "scores", "refuted", witness="<x>"),
    ))  # fmt: skip
    assert report.to_frame()["verdict"].tolist() == [row.verdict for row in report.rows]
    assert all(row.part in report._repr_html_() for row in report.rows)
    assert "&lt;x&gt;" in report._repr_html_()


def test_the_subspace_in_motion(run: sp.Stream) -> None:
    again = stream()
    releases = again.push_many(ROWS).releases
    figure = releases[-1].plot("motion", past=releases[:-1]).figure
    _, angles, share = figure.axes
    at, held = share.lines[0].get_data()
    assert list(at) == [release.t for release in releases]
    assert held[-1] == pytest.approx((releases[-1].subspace.basis[0] ** 2).sum())
    largest = angles.lines[0].get_ydata()
    assert largest[0] == pytest.approx(np.degrees(releases[0].subspace.angles(releases[-1].subspace)[-1]))
    assert len(releases[-1].plot("over-time", past=releases[:-1]).figure.axes) == 2
    # One component: the plane has a second axis of zeros.
    line = [release.replaced(n_components=1) for release in releases]
    assert len(line[-1].plot("motion", past=line[:-1]).figure.axes) == 3
    with pytest.raises(UsageError, match="pass past="):
        releases[-1].plot("motion")
    # A basis turned within its subspace is where it was.
    last = releases[-1].subspace.basis
    turned = sp.Release(t=1, n_components=2, guarantee=run.guarantee, basis=last @ [[0.6, -0.8], [0.8, 0.6]])
    first = [line.get_xydata() for line in releases[-1].plot("motion", past=[turned]).figure.axes[0].lines[2:]]
    assert np.concatenate(first) == pytest.approx(last)  # the lines before are the axes


class Handle:
    def __init__(self, first: str) -> None:
        self.shown = [first]
        self.changed = threading.Event()

    def update(self, html: str) -> None:
        self.shown.append(html)
        self.changed.set()


@pytest.fixture
def handles(monkeypatch: pytest.MonkeyPatch) -> list[Handle]:
    made: list[Handle] = []

    def display(html: str, *, display_id: bool) -> Handle:
        assert display_id
        made.append(Handle(html))
        return made[-1]

    module: Any = ModuleType("IPython.display")
    module.HTML, module.display = str, display
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return made


def test_a_card_keeps_up(handles: list[Handle]) -> None:
    watched = stream()
    with watched.watch(total=500, every=0.001):
        watched.push_many(ROWS[:250])
        handles[0].changed.clear()
        assert handles[0].changed.wait(60)  # the thread has looked again
    shown = handles[0].shown
    assert "Nothing has been released yet" in shown[0]
    assert "250 of 500 rows" in shown[-1]
    assert CURATOR in shown[-1]
    assert not any(thread.name == "streampca-watch" for thread in threading.enumerate())


def test_running_rows_with_a_card(handles: list[Handle]) -> None:
    watched, plain = stream(), stream()
    steps = list(watched.watch(ROWS, every=60.0, public=True))
    assert [step.t for step in steps] == list(range(1, 501))
    assert "500 of 500 rows" in handles[0].shown[-1]
    assert CURATOR not in handles[0].shown[-1]
    releases = [step.release for step in plain.run(ROWS) if step.release is not None]
    assert watched.release is not None
    assert watched.release.to_json() == releases[-1].to_json()


def test_what_cannot_be_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadParameterError, match="every"):
        stream().watch(every=0.0)
    with pytest.raises(UsageError, match="no rows to run"):
        list(stream().watch())
    monkeypatch.setitem(sys.modules, "IPython", None)
    monkeypatch.setitem(sys.modules, "IPython.display", None)
    with pytest.raises(UsageError, match="needs IPython"), stream().watch():
        pass
