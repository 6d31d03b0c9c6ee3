import json

import numpy as np
import pytest

import streampca as sp
from streampca.cli.live import Progress, facts
from streampca.errors import BadParameterError
from streampca.release.file import Header
from streampca.store import Store
from streampca.views.curator import CuratorPage
from streampca.views.public import PublicPage
from streampca.views.run_files import CuratorRun, PublicRun

PARAMETERS = {"processor": "PrivateFPL", "epsilon": 1.0}
HEADER = json.dumps({"kind": "header", "format": 1, "parameters": PARAMETERS}) + "\n"


def releases(store=None):
    stream = sp.Stream(
        sp.PrivateFPL(n_components=2, epsilon=1.0, delta=1e-6, release_every=10), features=list("abcd"), store=store
    )
    rng = np.random.default_rng(0)
    return stream, stream.push_many(rng.normal(size=(100, 4)) * 0.3).releases


@pytest.mark.parametrize("compact", [True, False])
def test_a_growing_file_is_followed_line_by_line(tmp_path, compact):
    path = tmp_path / "releases.jsonl"
    made = releases()[1]
    header = Header(made[0].terms, PARAMETERS).to_json() + "\n" if compact else HEADER
    path.write_text(header, encoding="utf-8")
    page, run = PublicPage(), PublicRun(tmp_path)
    assert not run.update(page)
    assert page.state()["title"] == "streampca · PrivateFPL"
    assert page.state()["parameters"][0] == ("processor", "PrivateFPL")
    text = "".join(release.to_json(terms=not compact) + "\n" for release in made)
    for end in (len(text) // 3, len(text) // 3 + 5, len(text)):  # cut within lines
        path.write_text(header + text[:end], encoding="utf-8")
        run.update(page)
    rows = page.state()["tables"]["releases"]["rows"]
    assert [row[0] for row in rows] == [release.t for release in made]


def test_a_store_is_read_without_its_key_while_it_grows(tmp_path):
    path = tmp_path / "run.db"
    store = Store(path)
    stream, made = releases(store)
    store.flush()
    (tmp_path / "run.db.key").rename(tmp_path / "away")
    page, run = PublicPage(), PublicRun(path)
    run.update(page)
    state = page.state()
    assert [row[0] for row in state["tables"]["releases"]["rows"]] == [release.t for release in made]
    assert [row["feature"] for row in state["loadings"]["rows"]] == list("abcd")
    assert ("processor", "PrivateFPL") in state["parameters"]
    stream.push_many(np.full((10, 4), 0.1))
    store.flush()
    assert run.update(page)
    assert page.state()["tables"]["releases"]["rows"][-1][0] == 110
    store.close()


def test_the_exact_regret_is_read_back(tmp_path):
    path = tmp_path / "regret.csv"
    path.write_text(
        "# curator only: x\nt,reward,opt,regret,bound,captured\n100,20.0,25.0,5.0,nan,0.9\n", encoding="utf-8"
    )
    page = CuratorPage(PublicPage())
    assert CuratorRun(path).update(page)
    state = page.state()
    assert state["tables"]["regret"]["rows"] == [[100, 0.05, None, 0.25, 0.9, None]]
    assert "none proved" in str(state)
    json.dumps(state, allow_nan=False)


@pytest.mark.parametrize("text", ["hello\n", '{"kind": "other"}\n', HEADER + "{}\n", HEADER + "[1]\n"])
def test_what_is_no_run_is_told_with_its_line(tmp_path, text):
    path = tmp_path / "releases.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadParameterError, match=r"releases\.jsonl, line \d"):
        PublicRun(path).new_releases()


def test_what_is_not_there_is_told(tmp_path):
    with pytest.raises(BadParameterError, match=r"no releases\.jsonl"):
        PublicRun(tmp_path)
    other = tmp_path / "regret.csv"
    other.write_text("t,regret\n", encoding="utf-8")
    with pytest.raises(BadParameterError, match="not a regret file"):
        CuratorRun(other).new_records()


def test_every_view_shows_the_interval_of_the_regret(tmp_path):
    """Of many features the regret is known as an interval: no view shows one end of it alone."""
    path = tmp_path / "regret.csv"
    path.write_text(
        "# curator only: x\nt,reward,opt,regret,bound,captured,slack\n100,20.0,25.0,5.0,nan,0.9,2.0\n", encoding="utf-8"
    )
    page, run = CuratorPage(PublicPage()), CuratorRun(path)
    assert run.update(page)
    state = page.state()
    assert state["tables"]["regret"]["rows"] == [[100, 0.05, None, 0.25, 0.9, 0.07]]
    assert state["panels"][0]["series"][:2] == [("average", "regret per row, at least"), ("most", "at most")]
    shown = {fact.label: fact.value for fact in page.facts()}
    assert shown["Regret per row"] == "between 0.05 and 0.07"
    assert shown["Captured"] == "at least 90.000 % of the best subspace"
    record = CuratorRun(path).new_records()[0]
    lines = dict(facts(Progress(100, 1.0, 1, 0, record), sp.Oja(n_components=1).guarantee, 1))
    assert lines["regret"] == "between 0.05 and 0.07 per row (no bound proved); at least 5 in all"
    assert lines["captured"].startswith("at least 90")
