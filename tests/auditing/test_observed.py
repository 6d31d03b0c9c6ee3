"""Everything public is observed, or left out with a reason; a leak through any of it is seen."""

import inspect
import logging
import sys
import warnings
from functools import cache

import numpy as np
import pytest
from planted.lifecycles import CASES

import streampca as sp
from streampca.auditing import observed
from streampca.auditing.runs import fresh_tape, run
from streampca.errors import StreamPCAWarning
from streampca.linalg.svec import unpack_entries
from streampca.processors.private_fpl import FPLProcessor
from streampca.release.estimates import Estimates
from streampca.views.card import Card
from streampca.views.page import Page

ROWS = 0.3 * np.random.default_rng(0).normal(size=(12, 3))


@cache
def everything():
    made = observed.Observed(2)
    names = (
        "PrivateFPL-centered-rewards", "PrivateFPL-smoothed", "SlidingWindowPCA-ring", "PrivateOja", "DPPCA",
        "AdaptiveCovariance", "PrivateFPL-private-bounds", "ExactSubspace", "PrivateFPL-person",
    )  # fmt: skip
    for name in names:
        case = CASES[name]
        subject = case.make()
        tape = fresh_tape(1, name)
        for value in run(case, subject, case.both_rows(subject)[1], case.feeds[0], tape).values:
            made.add(name, value)
    stream = sp.Stream(CASES["PrivateFPL-rewards"].make(), row_norm=1.0, regret=None, features=list("abc"))
    steps = [stream.push_many(ROWS[:4]), stream.push(ROWS[4])]
    blocks = sp.Stream(CASES["PrivateFPL"].make(), row_norm=1.0, regret=None, features=list("abc"))
    steps.append(blocks.push_block(sp.BlockGram.of(ROWS[:1])))
    for value in (*steps, stream, steps[0][0]):
        made.add("more", value)
    return made


def test_the_outputs_reach_every_public_class():
    made = everything()
    assert {sp.Release, sp.Subspace, sp.Terms, Estimates, sp.Stream, sp.Step, sp.Steps} <= made.classes
    assert len({path.split(".", 1)[-1] for path in made.seen}) > 150


def unread(kind):
    called = [one for one in observed.members_of(kind, dir(kind)) if callable(one[1]) and not isinstance(one[1], type)]
    return [n for n, member in called if (kind, n) not in observed.ARGUMENTS and observed.needs_arguments(member)]


def test_every_public_member_is_observed_or_left_out_with_a_reason():
    missing = {kind.__name__: names for kind in everything().classes if (names := unread(kind))}
    assert missing == {}, "observe them, give ARGUMENTS, or list them in NOT_OBSERVED with a reason"


@pytest.mark.parametrize("kind", observed.NOT_OBSERVED, ids=lambda kind: kind.__name__)
def test_what_is_not_observed_exists(kind):
    names = " ".join(observed.NOT_OBSERVED[kind].values()).split()
    assert len(names) == len(set(names))
    assert [name for name in names if not hasattr(kind, name) and f"self.{name}" not in inspect.getsource(kind)] == []


def test_a_new_member_that_cannot_be_read_is_named(monkeypatch):
    monkeypatch.setattr(sp.Release, "secret", lambda self, what: what, raising=False)
    assert unread(sp.Release) == ["secret"]


def refuted(name="PrivateFPL"):
    rows = sp.audit(CASES[name], mode="quick", seed=1).rows
    assert [(row.part, row.verdict) for row in rows] == [("leak", "refuted")], "\n".join(map(str, rows))
    return rows[0].witness


@pytest.fixture
def exact(monkeypatch):
    known, honest = {}, FPLProcessor.released

    def released(self, t, gram, outlet):
        after, release = honest(self, t, gram, outlet)
        known[id(release.packed)] = release.packed, unpack_entries(gram.packed(), self.n_features)
        return after, release

    monkeypatch.setattr(FPLProcessor, "released", released)
    return lambda release: known[id(release.packed)][1]


@pytest.mark.parametrize("name", ["smoothed", "trace", "gram"])
def test_every_attribute_is_read(name, exact, monkeypatch):
    value = exact if name == "gram" else lambda self: float(np.trace(exact(self)))
    monkeypatch.setattr(sp.Release, name, property(value), raising=False)
    assert f"Release.{name}" in refuted()


@pytest.mark.parametrize("name", ["variances", "shrunk_gram"])
def test_estimates_of_the_last_release_are_read(name, exact, monkeypatch):
    honest = sp.Release._estimates

    def estimates(self, *given):
        made = honest(self, *given)
        vars(made)[name] = getattr(made, name) + 1e-9 * np.trace(exact(self))
        return made

    monkeypatch.setattr(sp.Release, "_estimates", estimates)
    found = refuted()
    assert "component_estimates." in found or "Release.changes" in found


@pytest.mark.parametrize("depth", [1, 2])
def test_texts_are_read_in_depth(depth, exact, monkeypatch):
    monkeypatch.setattr(sp.Release, "__repr__", lambda self: f"Release {np.trace(exact(self))}")
    stream = sp.Stream(CASES["PrivateFPL"].make(), row_norm=1.0, regret=None, features=list("abc"))
    release = stream.push(np.array([0.5, 0.0, 0.0])).release
    assert observed.views(release, depth)["Release"] == "Release 0.25"


def test_cards_and_pages_are_read_at_depth_2(monkeypatch):
    stream = sp.Stream(CASES["PrivateFPL-rewards"].make(), row_norm=1.0, regret=None, features=list("abc"))
    release = stream.push_many(ROWS).releases[-1]
    before = observed.views(release, 2)

    def changed():
        after = observed.views(release, 2)
        return {path.split("[")[0].split(".")[0] for path, value in after.items() if before.get(path) != value}

    assert changed() == set()
    monkeypatch.setattr(Card, "curator", property(lambda self: "another"))
    assert changed() == {"card", "streampca show", "Release"}
    monkeypatch.undo()
    monkeypatch.setattr(Page, "panels", lambda self: [])
    assert changed() == {"page"}
    monkeypatch.undo()
    monkeypatch.setattr(sp.PrivateRegretRecord, "average", property(lambda self: (0.0, 0.0)))
    assert changed() == {"page", "private regret"}


def said(how, text):
    if how == "warning":
        warnings.warn(text, StreamPCAWarning, stacklevel=1)
    elif how in ("stdout", "stderr"):
        print(text, file=getattr(sys, how))
    else:
        logging.getLogger(how).debug("trace %s", text)


@pytest.mark.parametrize("how", ["warning", "stdout", "stderr", "streampca.regret.regret", "root", "another.library"])
def test_what_is_said_during_a_push_is_heard(how, monkeypatch):
    honest = FPLProcessor.step

    def step(self, rows, outlet):
        said(how, f"{float((rows**2).sum()):.3f}")
        return honest(self, rows, outlet)

    monkeypatch.setattr(FPLProcessor, "step", step)
    assert "said" in refuted()


def test_the_logger_of_the_curator_may_say_anything_and_loggers_are_restored(monkeypatch):
    root, own = logging.getLogger(), logging.getLogger("streampca.store")
    monkeypatch.setattr(root, "handlers", [])  # as in a program that configures no logging
    before = root.level, own.level, list(root.handlers), logging.root.manager.disable
    with observed.listening() as texts:
        logging.getLogger("streampca.curator").warning("regret 3.1")
        logging.getLogger("streampca.curators").warning("regret 3.1")
    assert texts == ["streampca.curators logged regret 3.1"]
    with pytest.raises(ZeroDivisionError), observed.listening():
        raise ZeroDivisionError
    assert (root.level, own.level, list(root.handlers), logging.root.manager.disable) == before


@pytest.mark.parametrize("name", ["features", "warmup_left"])
def test_streams_are_read_after_a_run(name, monkeypatch):
    honest = getattr(sp.Stream, name)
    told = property(lambda self: (honest.fget(self), float(self.engine.processor.gram.packed()[0])))
    monkeypatch.setattr(sp.Stream, name, told)
    assert f"Stream.{name}" in refuted()
