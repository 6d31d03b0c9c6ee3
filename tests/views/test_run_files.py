import json

import numpy as np
import pytest

import streampca as sp
from streampca.errors import UsageError
from streampca.release.file import Header
from streampca.views.page import Page
from streampca.views.run_files import RunFiles

PARAMETERS = {"processor": "PrivateFPL", "epsilon": 1.0}
HEADER = Header(sp.Terms(sp.Guarantee.none("of another run")), PARAMETERS).to_json() + "\n"


def releases(store=None):
    algorithm = sp.PrivateFPL(n_components=2, epsilon=1.0, center=False, release_every=10)
    stream = sp.Stream(algorithm, row_norm=1.0, features=list("abcd"), store=store)
    rng = np.random.default_rng(0)
    return stream, stream.push_many(rng.normal(size=(100, 4)) * 0.3).releases


@pytest.mark.parametrize("compact", [True, False])
def test_a_growing_file_is_followed_line_by_line(tmp_path, compact):
    path = tmp_path / "releases.jsonl"
    made = releases()[1]
    header = Header(made[0].terms, PARAMETERS).to_json() + "\n" if compact else HEADER
    path.write_text(header, encoding="utf-8")
    page, run = Page(), RunFiles(tmp_path)
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
    store = sp.Store(path)
    stream, made = releases(store)
    store.flush()
    (tmp_path / "run.db.key").rename(tmp_path / "away")
    page, run = Page(), RunFiles(path)
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


COLUMNS = "t,reward,opt,regret,bound,captured"


def a_regret(tmp_path, text):
    (tmp_path / "releases.jsonl").write_text(HEADER, encoding="utf-8")
    path = tmp_path / "regret.csv"
    path.write_text(text, encoding="utf-8")
    return RunFiles(tmp_path, path)


def test_what_is_not_there_is_told(tmp_path):
    with pytest.raises(UsageError, match=r"no releases\.jsonl"):
        RunFiles(tmp_path)
    for text in ("t,regret\n", "# curator only\nt,regret\n", f"# curator only\n{COLUMNS}\n1,2\n"):
        with pytest.raises(UsageError, match=r"line \d: not a regret file"):
            a_regret(tmp_path, text).new_records()
    with pytest.raises(UsageError, match="no such file"):
        RunFiles(tmp_path, tmp_path / "other.csv")


@pytest.mark.parametrize(
    ("slack", "row", "label", "text", "captured"),
    [
        ("", [100, 0.05, None, None, None, 0.25, 0.9], "regret per row", "0.05", "90.000"),
        # Of many features the regret is known as an interval: no view shows one end of it alone.
        (",2.0", [100, None, 0.05, 0.07, None, 0.25, 0.9], "regret per row, at least", "between 0.05 and 0.07",
         "at least 90.000"),
    ],
)  # fmt: skip
def test_the_exact_regret_is_read_back(tmp_path, slack, row, label, text, captured):
    head = f"# curator only: x\n{COLUMNS}{',slack' if slack else ''}\n"
    run, page = a_regret(tmp_path, f"{head}100,20.0,25.0,5.0,nan,0.9{slack}\n"), Page(curator=True)
    assert run.update(page)
    state = page.state()
    assert state["tables"]["regret"]["rows"] == [row]
    series = dict(state["panels"][0]["series"])
    assert ("at most" in series.values()) == bool(slack)
    assert label in series.values()
    shown = {fact["label"].partition(",")[0]: fact["value"] for fact in state["facts"]}
    assert shown["Regret per row"] == text
    assert shown["Captured"] == f"{captured} % of the best subspace"
    assert shown["Bound on the regret"] == "none proved"
    json.dumps(state, allow_nan=False)
