"""The public page can only ever show publishable values: canaries, and what can be reached at all."""

import gc
import io
import json
import re
import sys
import types
from contextlib import contextmanager

import numpy as np
import pytest
from rich.console import Console

import streampca as sp
from streampca.errors import UsageError
from streampca.linalg.lattice import GramSum
from streampca.privacy.outlet import NoiseSource
from streampca.release.file import Header
from streampca.views.facts import Fact
from streampca.views.page import Page

pytest.importorskip("uvicorn")
from pages import Run, ask, bare, event
from test_server import FILES

from streampca.cli.live import PlainView, Progress
from streampca.cli.page import ServedPage
from streampca.views.run_files import RunFiles
from streampca.views.server import Server

#: Every curator value of the test has these digits, at sizes that nothing publishable has.
DIGITS = "7318264"
CANARY = sp.RegretRecord(1_000_000, 7.318264e41, 7.318264e42, 7.318264e40, 7.318264e43, 7.318264e39)
PROGRESS = Progress(731826455, 1e-30, 731826455, CANARY)


def leaks(text: str) -> bool:
    """True if a canary shows, in whatever format: all digits, four digits with an exponent, groups of three."""
    plain = re.sub(r"\\u202f|[\s\u202f,_']", "", text)
    return DIGITS in plain.replace(".", "") or re.search(r"7\.318\d*e\+?\d\d", plain) is not None or "731826" in plain


@contextmanager
def a_page(public: bool) -> ServedPage:
    """A page fed as a session feeds it: releases to the page, the rest to the views."""
    served = ServedPage(is_public=public, port=0)
    views = [PlainView(Console(file=io.StringIO()), "t", None), served]
    served.page.describe({"processor": "PrivateFPL", "n_components": 2})
    served.page.add(Run().push(1000))
    with served.server:
        for view in 3 * views:
            view.add(CANARY)
            view.show(PROGRESS)
            view.end(PROGRESS)
        served.close(stay=False, budget=f"{DIGITS} of it")
        yield served


@pytest.fixture(scope="module")
def public():
    with a_page(True) as served:
        yield served.server.port


def test_the_detector_finds_canaries_on_the_curators_page():
    with a_page(False) as served:
        state = event(served.server.port, served.server.url.partition("#token=")[2])
        assert leaks(json.dumps(state["tables"]))
        exact = [one["value"] for one in state["facts"] if one["curator"] and one["label"] != "Rows per second"]
        assert len(exact) > 3
        assert all(map(leaks, exact))
        assert f"{DIGITS} of it" in served.page.message()


def test_no_route_shows_a_canary(public, caplog, capfd):
    for path in (*FILES, "/events"):
        status, headers, body = ask(public, path)
        assert status == 200
        assert not leaks(body.decode() + str(headers)), path
    state = event(public)
    assert not any(shown["curator"] for shown in state["facts"] + state["panels"])
    assert not leaks(caplog.text + "".join(capfd.readouterr()))


def test_only_releases_get_in():
    run, shown = Run(), Page()
    run.push(100)
    stream = run.stream
    sneaky = type("Sneaky", (sp.Release,), {})(t=1, n_components=1, guarantee=stream.guarantee, basis=np.eye(3, 1))
    things = (stream, stream.regret.now(), stream.regret, CANARY, stream.engine.processor, {"t": 1}, 3.0, sneaky)
    for thing in things:
        with pytest.raises(UsageError, match="may not be published"):
            shown.add([thing])
    with pytest.raises(UsageError, match="may not be published"):
        shown.show([Fact("Rows", "9", curator=True)])
    assert shown.state()["tables"] == {}


def test_releases_that_promise_nothing_are_not_published():
    before, after = Page(), Page()
    before.add([bare()])
    with pytest.raises(UsageError, match="may not be published"):
        Server(before, port=0)
    with Server(after, port=0), pytest.raises(UsageError, match="may not be published"):
        after.add([bare()])
    assert after.state()["tables"] == {}


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


def test_nothing_of_the_curator_can_be_reached_from_the_public_server():
    run = Run()
    run.push(500)
    secret = (sp.Stream, sp.Regret, sp.RegretRecord, sp.Processor, GramSum, NoiseSource, sp.Randomness)
    with Server(run.public, port=0) as server:
        found = reachable(server)
    assert any(thing is run.public for thing in found)  # the method sees what is there
    assert [thing for thing in reachable(run.curator) if isinstance(thing, secret)]
    assert not [thing for thing in found if isinstance(thing, secret)]


def test_a_public_folder_is_read_without_opening_what_is_the_curators(tmp_path):
    run = Run()
    releases = run.push(300)
    lines = [Header(releases[0].terms, {"processor": "PrivateFPL"}).to_json(), *(one.to_json() for one in releases)]
    (tmp_path / "releases.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    opened = []
    sys.addaudithook(lambda name, args: opened.append(str(args[0])) if name == "open" else None)
    (tmp_path / "regret.csv").write_text(f"# curator only\n{DIGITS}\n", encoding="utf-8")
    opened.clear()
    shown = Page()
    assert RunFiles(tmp_path).update(shown)
    assert any("releases.jsonl" in name for name in opened)
    assert not any("regret.csv" in name for name in opened)
    assert len(shown.state()["tables"]["releases"]["rows"]) == 6
