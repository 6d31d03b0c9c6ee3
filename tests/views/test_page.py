import json
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

import streampca as sp
from streampca.release.release import rows_summed
from streampca.views.card import card
from streampca.views.facts import admission_facts, budget_fact, captured_share, regret_facts
from streampca.views.page import Table
from streampca.views.plots import aligned, signs_like
from streampca.views.public import PublicPage

sys.path.insert(0, str(Path(__file__).parent))
from pages import FEATURES, PATIENCE, Run


def test_a_message_is_the_whole_state_and_made_once():
    run = Run()
    run.push(500)
    for page in (run.public, run.curator):
        made = page.message()
        assert json.loads(made) == json.loads(json.dumps(page.state()))
        assert page.message() is made
    run.push(50)
    for page in (run.public, run.curator):
        assert len(json.loads(page.message())["tables"]["releases"]["rows"]) == 11
    run.curator.show(budget_fact("half of it"))
    assert "half of it" in run.curator.message()
    assert "half of it" not in run.public.message()


def test_the_end_of_a_run_and_a_reader_do_not_wait_for_each_other():
    run = Run()
    with run.public.lock:  # as a reader of the curator's page holds it
        ending = threading.Thread(target=run.curator.end, daemon=True)
        ending.start()
        time.sleep(0.1)
        assert run.curator.lock.acquire(timeout=1.0)
        run.curator.lock.release()
    ending.join(PATIENCE)
    assert run.curator.ended == run.public.ended == "The run has ended"


def test_tables_stay_small_and_end_with_the_last_release():
    table = Table(("t",), most=64)
    for t in range(100_000):
        table.add(lambda t=t: (t,))
    assert 32 <= len(table.items) <= 64
    assert np.ptp(np.diff([row[0] for row in table.items])) == 0
    table.finish()
    table.finish()
    assert table.items[-2][0] < table.items[-1][0] == 99_999
    page = PublicPage()
    for t in range(1, 1101):
        page.add([sp.Release(t=t, n_components=1, guarantee=sp.Guarantee.none("test"), basis=np.eye(3, 1))])
    page.end()
    assert page.tables()["releases"].items[-1][0] == 1100


def test_figures_are_those_of_the_releases():
    run = Run()
    releases = run.push(400)
    run.public.end()
    state = run.public.state()
    columns = state["tables"]["releases"]["columns"]
    rows = {row[0]: dict(zip(columns, row, strict=True)) for row in state["tables"]["releases"]["rows"]}
    before, last = releases[-2], releases[-1]
    row = rows[last.t]
    assert row["value_1"] == pytest.approx(last.eigenvalues[0] / 400)
    assert row["angle_1"] == pytest.approx(np.degrees(last.subspace.angles(before.subspace)[-1]))
    assert row["noise"] == pytest.approx(last.noise_std * np.sqrt(2 * len(FEATURES)) / 400)
    low, high = sp.PrivateRegretRecord.of(last).average
    assert state["tables"]["intervals"]["rows"][-1] == [400, pytest.approx(low), pytest.approx(high)]
    assert {panel["name"] for panel in state["panels"]} >= {"intervals", "values", "angles"}
    assert not any(panel["curator"] for panel in state["panels"])
    assert [row["feature"] for row in state["loadings"]["rows"]] == list(FEATURES)
    exact = run.curator.state()
    assert {p["name"] for p in exact["panels"] if p["curator"]} == {"regret", "captured"}
    assert run.stream.regret.now().average == pytest.approx(exact["tables"]["regret"]["rows"][-1][1])


def test_both_pages_show_the_card_and_the_public_one_nothing_of_the_rows():
    run = Run()
    run.push(2000)
    report = run.stream.admission
    run.curator.count(rows=2000, further=admission_facts(report))
    run.curator.show(budget_fact("half of it"))
    public, exact = run.public.state(), run.curator.state()
    released = card(run.stream.release, releases=40)
    assert [f for f in public["facts"] if "interval" not in f["label"]] == [asdict(fact) for fact in released.facts]
    assert public["lead"].startswith("Not centered")
    assert public["loadings"]["heads"] == released.table()[1:4]
    assert [row["bars"] for row in public["loadings"]["rows"]] == [row["bars"] for row in released.loadings["rows"]]
    full = card(
        run.stream.release, releases=40,
        further=[*regret_facts(run.stream.regret.now()), *admission_facts(report), budget_fact("half of it")],
    )  # fmt: skip
    assert {(f["label"], f["value"]) for f in exact["facts"]} >= {(f.label, f.value) for f in full.facts}
    curators = [fact.value for fact in full.facts if fact.curator]
    assert len(curators) > 5
    assert all(f["curator"] == (f["label"] not in {p["label"] for p in public["facts"]}) for f in exact["facts"])
    assert "half of it" not in json.dumps(public)


def test_windows_and_blocks_divide_by_their_own_rows():
    def release(**details):
        return sp.Release(
            t=900, n_components=1, guarantee=sp.Guarantee.none("test"), basis=np.eye(3, 1), details=details
        )

    def rows_in(**details):
        return rows_summed(release(**details))

    assert [rows_in(), rows_in(window=[401, 900]), rows_in(rows=100)] == [900, 500, 100]
    page = PublicPage()
    page.add([release(window=[401, 900], checkpoints=12)])
    assert rows_in(window=[1, 900], decay_per_release=0.9) == 1
    assert "checkpoints" in {panel.name for panel in page.panels()}


def test_a_share_hidden_by_noise_is_left_out():
    fields = {"t": 9, "n_components": 1, "guarantee": sp.Guarantee.none("test")}
    clear = sp.Release.of_gram(np.diag([6.0, 3.0, 1.0]), noise_std=0.01, **fields)
    assert captured_share(clear) == pytest.approx(0.6)
    assert captured_share(sp.Release.of_gram(np.diag([6.0, 3.0, 1.0]), noise_std=9.0, **fields)) is None
    assert captured_share(sp.Release.of_gram(np.diag([6.0, -3.0, 1.0]), noise_std=0.01, **fields)) is None


def test_empty_subspaces_are_shown_as_none():
    page = PublicPage()
    for t in (1, 2):
        page.add([sp.Release(t=t, n_components=0, guarantee=sp.Guarantee.none("test"), basis=np.zeros((3, 0)))])
    json.dumps(page.state(), allow_nan=False)
    assert page.panels() == []


def test_signs_do_not_flip_over_time():
    rng = np.random.default_rng(3)
    basis = np.linalg.qr(rng.normal(size=(6, 3)))[0]
    flipped = basis * np.array([1.0, -1.0, -1.0])
    np.testing.assert_array_equal(signs_like(flipped, basis), basis)
    swapped = [basis, -basis[:, [1, 0, 2]], basis * np.array([-1.0, 1.0, 1.0])]
    followed = aligned(swapped)
    for made in followed[:-1]:
        np.testing.assert_allclose(made, swapped[-1])
    np.testing.assert_array_equal(followed[-1], swapped[-1])
