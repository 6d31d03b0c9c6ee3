import json

import numpy as np
import pytest

import streampca as sp
from streampca.dashboard import CuratorBoard, PublicBoard
from streampca.dashboard.files import CuratorRun, PublicRun
from streampca.dashboard.follow import publish, tell
from streampca.errors import BadParameter
from streampca.release_file import Header
from streampca.store import Store

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
    board, run = PublicBoard(), PublicRun(tmp_path)
    assert not publish(board, run)
    assert board.state()["title"] == "streampca · PrivateFPL"
    assert board.state()["parameters"][0] == {"label": "processor", "value": "PrivateFPL"}
    text = "".join(release.to_json(terms=not compact) + "\n" for release in made)
    for end in (len(text) // 3, len(text) // 3 + 5, len(text)):  # cut within lines
        path.write_text(header + text[:end], encoding="utf-8")
        publish(board, run)
    rows = board.state()["tables"]["releases"]["rows"]
    assert [row[0] for row in rows] == [release.t for release in made]


def test_a_store_is_read_without_its_key_while_it_grows(tmp_path):
    path = tmp_path / "run.db"
    store = Store(path)
    stream, made = releases(store)
    store.flush()
    (tmp_path / "run.db.key").rename(tmp_path / "away")
    board, run = PublicBoard(), PublicRun(path)
    publish(board, run)
    state = board.state()
    assert [row[0] for row in state["tables"]["releases"]["rows"]] == [release.t for release in made]
    assert [row["feature"] for row in state["loadings"]["rows"]] == list("abcd")
    assert {"label": "processor", "value": "PrivateFPL"} in state["parameters"]
    stream.push_many(np.full((10, 4), 0.1))
    store.flush()
    assert publish(board, run)
    assert board.state()["tables"]["releases"]["rows"][-1][0] == 110
    store.close()


def test_the_exact_regret_is_read_back(tmp_path):
    path = tmp_path / "regret.csv"
    path.write_text(
        "# curator only: x\nt,reward,opt,regret,bound,captured\n100,20.0,25.0,5.0,nan,0.9\n", encoding="utf-8"
    )
    board = CuratorBoard(PublicBoard())
    assert tell(board, CuratorRun(path))
    state = board.state()
    assert state["tables"]["regret"]["rows"] == [[100, 0.05, None, 0.25, 0.9]]
    json.dumps(state, allow_nan=False)


@pytest.mark.parametrize("text", ["hello\n", '{"kind": "other"}\n', HEADER + "{}\n", HEADER + "[1]\n"])
def test_what_is_no_run_is_told_with_its_line(tmp_path, text):
    path = tmp_path / "releases.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadParameter, match=r"releases\.jsonl, line \d"):
        PublicRun(path).new_releases()


def test_what_is_not_there_is_told(tmp_path):
    with pytest.raises(BadParameter, match=r"no releases\.jsonl"):
        PublicRun(tmp_path)
    other = tmp_path / "regret.csv"
    other.write_text("t,regret\n", encoding="utf-8")
    with pytest.raises(BadParameter, match="not a regret file"):
        CuratorRun(other).new_records()
