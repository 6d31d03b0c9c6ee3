import json
from dataclasses import asdict

import numpy as np
import pytest
from dense_forms import gram_release
from pages import FEATURES, Run, bare

import streampca as sp
from streampca.release.release import rows_summed
from streampca.views.card import card
from streampca.views.facts import Fact, admission_facts, regret_facts
from streampca.views.page import Page, Thinned


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
    run.curator.show([Fact("Budget in the ledger", "half of it", curator=True)])
    assert "half of it" in run.curator.message()


def test_tables_stay_small_and_end_with_the_last_release():
    table = Thinned()
    for t in range(100_000):
        table.offer(lambda t=t: t)
    assert 256 <= len(table.items) <= 512
    assert np.ptp(np.diff(table.items)) == 0
    table.finish()
    table.finish()
    assert table.items[-2] < table.items[-1] == 99_999
    page = Page()
    for t in range(1, 1101):
        page.add([bare(t)])
    page.end()
    assert page.tables["releases"].items[-1][0] == 1100


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


def test_the_public_page_is_the_curators_without_its_figures():
    run = Run()
    run.push(2000)
    admitted = [*admission_facts(run.stream.admission), Fact("Budget", "half of it", curator=True)]
    run.curator.show(admitted)
    public, exact = json.loads(run.public.message()), json.loads(run.curator.message())
    for name in ("facts", "panels"):
        assert [one for one in exact[name] if not one["curator"]] == public[name]
        assert not any(one["curator"] for one in public[name])
    assert [exact["tables"].pop("regret")["rows"][-1][0]] == [2000]
    same = [name for name in public if name not in ("facts", "panels", "notice", "publishable")]
    assert {name: public[name] for name in same} == {name: exact[name] for name in same}
    assert (public["publishable"], exact["publishable"]) == (True, False)
    further = [*regret_facts(run.stream.regret.now()), *admitted]
    shown = card(run.stream.release, releases=40, further=further, marks=run.public.looks.marks)
    assert exact["facts"] == [asdict(fact) for fact in shown.facts]
    assert public["loadings"]["heads"] == [["share of variance", *shown.shares]]
    assert [row["bars"] for row in public["loadings"]["rows"]] == [row["bars"] for row in shown.loadings["rows"]]


def test_windows_and_blocks_divide_by_their_own_rows():
    cases = (
        ({}, 900),
        ({"window": [401, 900]}, 500),
        ({"rows": 100}, 100),
        ({"window": [1, 9], "decay_per_release": 0.9}, 1),
    )
    for details, rows in cases:
        assert rows_summed(bare(900, details=details)) == rows


def test_a_share_hidden_by_noise_is_left_out():
    fields = {"t": 9, "n_components": 1, "guarantee": sp.Guarantee.none("test")}
    for sigma, shown in ((1.4, True), (1.5, False)):  # the trace is 10, and 4 sigma sqrt(3) is 9.7 and 10.4
        noisy = gram_release(np.diag([6.0, 3.0, 1.0]), noise_std=sigma, **fields)
        assert (noisy.estimates.share(1) is not None) == shown


def test_empty_subspaces_are_shown_as_none():
    page = Page()
    page.add([bare(1, 0), bare(2, 0)])
    json.dumps(page.state(), allow_nan=False)
    assert page.panels() == []


def test_signs_do_not_flip_between_two_messages():
    page, basis = Page(), np.linalg.qr(np.random.default_rng(3).normal(size=(6, 3)))[0]
    guarantee = sp.Guarantee.none("it is a test")
    for t, turned in enumerate((basis, -basis, basis * [1.0, -1.0, 1.0]), 1):
        page.add([sp.Release(t=t, n_components=3, guarantee=guarantee, basis=turned)])
        assert [row["values"] for row in page.state()["loadings"]["rows"]] == basis.tolist()


BUDGET = {"n_components": 2, "epsilon": 1.0, "delta": 1e-6}


@pytest.mark.parametrize(
    ("algorithm", "wanted"),
    [
        (sp.PrivateFPL(**BUDGET, release_every=10, publish_regret=True), {"intervals", "values", "angles"}),
        (sp.PrivateFPL(center=False, **BUDGET, release_every=10, solver="smoothed"), {"values", "angles"}),
        (sp.SlidingWindowPCA(center=False, **BUDGET, window=50, release_every=10), {"values"}),
        (sp.Oja(n_components=2, release_every=10), {"angles"}),
        (sp.PrivateOja(**BUDGET, batch_size=16), {"angles"}),
        (sp.DPPCA(n_components=2, epsilon=50.0, delta=0.1, horizon=340, batch_size=56), set()),
        (sp.Tumbling(sp.GaussianCovariance(**BUDGET, center=False), release_every=40), {"values", "angles"}),
        (sp.Tumbling(sp.ExactSubspace(**BUDGET), release_every=40), set()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_kind_of_processor_has_its_page(algorithm, wanted):
    stream = sp.Stream(algorithm, row_norm=1.0, regret=sp.RegretLog(every=20), seed=2)
    rows = np.random.default_rng(0).normal(size=(340, 6)) * np.array([0.6, 0.4, 0.1, 0.1, 0.1, 0.1])
    page = Page(curator=True)
    page.add([*stream.push_many(rows).releases, *stream.regret.history])
    page.end()
    state = json.loads(json.dumps(page.state(), allow_nan=False))
    assert {panel["name"] for panel in state["panels"]} >= wanted | {"regret", "captured"}
    assert state["guarantee"]
    if stream.release is not None:
        assert state["tables"]["releases"]["rows"][-1][0] == stream.release.t
    for panel in state["panels"]:
        named = [column for column, _ in panel["series"]] + list((panel["band"] or [])[:2])
        assert set(named) <= set(state["tables"][panel["table"]]["columns"])
