"""The public page can only ever show publishable values: canaries, fuzzed routes, and what can be reached at all."""

import gc
import io
import json
import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

import streampca as sp
from streampca.errors import BadParameterError
from streampca.linalg.lattice import GramSum
from streampca.privacy.outlet import NoiseSource
from streampca.processors.base import Processor
from streampca.views.curator import CuratorPage
from streampca.views.plots import trails
from streampca.views.public import PublicPage

pytest.importorskip("uvicorn")
from streampca.cli.live import PlainView, Progress
from streampca.cli.page import Page
from streampca.views.run_files import PublicRun
from streampca.views.server import STATIC, public_app

sys.path.insert(0, str(Path(__file__).parent))
from pages import Run, ask, event

#: Every curator value of the test has these digits, at sizes that nothing publishable has.
DIGITS = "7318264"
CANARY = sp.RegretRecord(1_000_000, 7.318264e41, 7.318264e42, 7.318264e40, 7.318264e43, 7.318264e39)
PROGRESS = Progress(731826455, 1e-30, 731826455, 731826455, CANARY)


def leaks(text: str) -> bool:
    """True if a canary shows, in whatever format: all digits, four digits with an exponent, groups of three."""
    plain = re.sub(r"\\u202f|[\s\u202f,_']", "", text)
    return DIGITS in plain.replace(".", "") or re.search(r"7\.318\d*e\+?\d\d", plain) is not None or "731826" in plain


def a_page(public: bool) -> tuple[Page, int, str | None]:
    """A page fed as a session feeds it: releases to `publish`, the rest to the view."""
    page = Page(is_public=public, port=0)
    page.open("secret-name.csv")
    run = Run()
    releases = run.push(1000)
    views = [
        PlainView(Console(file=io.StringIO()), "t", run.stream.guarantee, 2, None),
        *([] if page.curator is None else [page.curator]),
    ]
    for view in views:
        view.start()
    page.public.describe({"processor": "PrivateFPL", "n_components": 2})
    page.public.add(releases)
    for view in 3 * views:
        view.add(CANARY)
        view.show(PROGRESS)
    for view in views:
        view.end(PROGRESS)
    token = page.server.url.partition("#token=")[2] or None
    return page, page.server.port, token


@pytest.fixture(scope="module")
def public():
    page, port, _ = a_page(True)
    yield port
    page.close(stay=False)


def test_the_detector_finds_canaries_on_the_curators_page():
    page, port, token = a_page(False)
    try:
        right = [("Authorization", f"Bearer {token}")]
        assert leaks(ask(port, "/api/state", headers=right)[2].decode())
        assert leaks(json.dumps(event(port, dict(right))))
        facts = json.loads(ask(port, "/api/state", headers=right)[2])["facts"]
        assert all(leaks(fact["value"]) for fact in facts if fact["curator"] and fact["label"] != "Rows per second")
    finally:
        page.close(stay=False)


def test_no_route_shows_a_canary(public, caplog, capfd):
    for path in (*STATIC, "/api/state"):
        status, headers, body = ask(public, path)
        assert status == 200
        assert not leaks(body.decode()), path
        assert not leaks(str(headers))
    state = event(public)
    assert not leaks(json.dumps(state))
    assert "secret-name" not in json.dumps(state)
    assert not any(fact["curator"] for fact in state["facts"])
    assert not any(panel["curator"] for panel in state["panels"])
    assert not leaks(caplog.text + "".join(capfd.readouterr()))


PIECES = st.sampled_from(
    ["api", "state", "events", "..", "%2e%2e", "regret", "regret.csv", "curator", "releases", "private", "token",
     "admin", "debug", "metrics", "openapi.json", "docs", "", "static", "page.js", "bad_rows", "%00", "\\", ";", "@"]
)  # fmt: skip
HEADERS = st.lists(st.tuples(
    st.sampled_from(["Last-Event-ID", "Authorization", "Accept", "X-Forwarded-Host", "Cookie", "Range", "Origin"]),
    st.sampled_from(["", "Bearer x", "text/csv", "curator", "bytes=0-", "0-0", "http://127.0.0.1"]),
), max_size=3)  # fmt: skip


@settings(deadline=None, max_examples=120)
@given(st.lists(PIECES, max_size=4), st.sampled_from(["GET", "HEAD", "POST", "OPTIONS"]), HEADERS, st.booleans())
def test_no_question_gets_a_canary(public, pieces, method, headers, query):
    path = "/" + "/".join(pieces) + ("?page=curator" if query else "")
    if path == "/api/events" and method == "GET":
        assert not leaks(json.dumps(event(public, dict(headers)) if not any(h[0] == "Origin" for h in headers) else ""))
        return
    status, answered, body = ask(public, path, method, headers)
    assert not leaks(body.decode() + str(answered))
    assert status < 500


def test_only_releases_get_in():
    run, shown = Run(), PublicPage()
    run.push(100)
    for thing in (
        run.stream,
        run.stream.regret.now(),
        run.stream.regret,
        CANARY,
        run.stream.engine.processor,
        {"t": 1},
        3.0,
    ):
        with pytest.raises(BadParameterError, match="may be published"):
            shown.add([thing])
        with pytest.raises(BadParameterError, match="may not be published"):
            shown.add_regret([thing])

    class Sneaky(sp.Release):
        pass

    with pytest.raises(BadParameterError, match="may be published"):
        shown.add([Sneaky(t=1, n_components=1, guarantee=run.stream.guarantee, basis=np.eye(3, 1))])
    assert shown.state()["tables"]["releases"]["rows"] == []


def test_releases_that_promise_nothing_are_not_published():
    nothing = sp.Release(t=1, n_components=1, guarantee=sp.Guarantee.none("it leaks"), basis=np.eye(3, 1))
    before, after = PublicPage(), PublicPage()
    before.add([nothing])
    with pytest.raises(BadParameterError, match="no privacy guarantee"):
        public_app(before, hosts=["x"])
    public_app(after, hosts=["x"])
    with pytest.raises(BadParameterError, match="no privacy guarantee"):
        after.add([nothing])
    assert after.state()["tables"]["releases"]["rows"] == []


def reachable(start):
    """Every object that can be reached from one, but for modules, classes and the globals of functions."""
    seen, todo = {id(start): start}, [start]
    while todo:
        thing = todo.pop()
        inner = gc.get_referents(thing)
        if isinstance(thing, types.FunctionType):
            inner = [thing.__closure__, thing.__defaults__, thing.__kwdefaults__]
        for one in inner:
            if id(one) not in seen and not isinstance(one, (types.ModuleType, type)):
                seen[id(one)] = one
                todo.append(one)
    return list(seen.values())


def test_nothing_of_the_curator_can_be_reached_from_the_public_app():
    run = Run()
    run.push(500)
    secret = (sp.Stream, sp.Regret, sp.RegretRecord, CuratorPage, Processor, GramSum, NoiseSource, sp.Randomness)
    app = public_app(run.public, hosts=["x"])
    assert not [thing for thing in reachable(app) if isinstance(thing, secret)]
    assert [thing for thing in reachable(run.curator) if isinstance(thing, secret)]  # the method sees what is there


def test_a_public_folder_is_read_without_opening_what_is_the_curators(tmp_path):
    run = Run()
    lines = [json.dumps({"kind": "header", "format": 1, "parameters": {"processor": "PrivateFPL"}})]
    lines += [release.to_json() for release in run.push(300)]
    (tmp_path / "releases.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    opened = []
    sys.addaudithook(lambda name, args: opened.append(str(args[0])) if name == "open" else None)
    (tmp_path / "regret.csv").write_text(f"# curator only\n{DIGITS}\n", encoding="utf-8")
    opened.clear()
    shown = PublicPage()
    assert PublicRun(tmp_path).update(shown)
    assert any("releases.jsonl" in name for name in opened)
    assert not any("regret.csv" in name for name in opened)
    assert len(shown.state()["tables"]["releases"]["rows"]) == 6


def test_the_subspace_in_motion():
    page, releases = PublicPage(), Run().push(300)
    page.add(releases[:1])
    assert page.state()["motion"] is None  # nothing moved yet
    page.add(releases[1:])
    ways = page.state()["motion"]
    last = releases[-1].subspace.basis
    assert len(ways) == min(6, last.shape[0])
    ends = {way["feature"]: way["points"][-1] for way in ways}
    names = list(releases[-1].features or [f"feature {i + 1}" for i in range(len(last))])
    for name, end in ends.items():
        assert np.allclose(end, last[names.index(name), :2], atol=1e-3)
    # A basis turned within its subspace is where it was.
    turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    plane = trails(np.array([last[:, :2] @ turn, last[:, :2]]))
    assert np.allclose(plane[0], plane[1])
