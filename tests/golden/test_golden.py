"""Releases recorded before a refactoring are released after it, to the bit."""

from collections.abc import Iterator
from typing import Any

import golden_cases as cases
import golden_releases as golden
import numpy as np
import pytest
import threadpoolctl

import streampca as sp
from streampca import _native

RECORDED: dict[str, Any] = golden.read()
NAMES = [*cases.STREAMS, *cases.MECHANISMS]


@pytest.fixture(autouse=True)
def recorded_kernels() -> Iterator[None]:
    """One BLAS thread and numpy's kernels, as when bases were recorded."""
    before = _native.use(False)
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        yield
    _native.use(before)


def compare(found: dict[str, Any], name: str, *, spans: bool) -> None:
    recorded = RECORDED["cases"][name]
    assert found["releases"] == recorded["releases"]
    assert found["facts"] == recorded["facts"] or name in cases.BY_LAPACK
    if here := golden.build() == RECORDED["builds"][recorded["build"]]:
        assert found["spans"] == recorded["spans"] or not spans
    if here or name not in cases.BY_LAPACK:
        assert found["words"] == recorded["words"]
        np.testing.assert_allclose(found["projector"], recorded["projector"], atol=1e-6)
        np.testing.assert_allclose(found["noise_std"] or 0.0, recorded["noise_std"] or 0.0, rtol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_releases_are_the_recorded_ones_with_a_copy_between(name: str) -> None:
    compare(golden.digest(name, golden.released(name, interrupted=True)), name, spans=True)


def test_compiled_kernels_release_the_recorded_words() -> None:
    _native.use(True)
    for name in NAMES:
        compare(golden.digest(name, golden.released(name)), name, spans=False)


def test_every_case_is_recorded_and_every_change_has_a_reason() -> None:
    assert set(RECORDED["cases"]) == set(NAMES)
    assert len(NAMES) >= 45
    assert all(change["why"].strip() and (change["cases"] or change["retired"]) for change in RECORDED["changes"])
    assert {name for change in RECORDED["changes"] for name in change["cases"]} >= set(NAMES)


def test_every_public_algorithm_and_mechanism_has_a_case() -> None:
    made = [made() for made, _ in (*cases.STREAMS.values(), *cases.MECHANISMS.values())]
    public = {getattr(room, name) for room in (sp, sp.papers) for name in room.__all__}
    kinds = {kind for kind in public if isinstance(kind, type) and hasattr(kind, "guarantee")}
    kinds -= {sp.Algorithm, sp.FleetStep, sp.Release, sp.Stream, sp.Terms}
    assert {type(one) for one in made} >= {kind for kind in kinds if not getattr(kind, "__abstractmethods__", ())}


def test_a_thousandth_in_one_row_changes_the_words(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = cases.rows()
    rows[200, 3] += 1e-3
    monkeypatch.setattr(cases, "rows", lambda: rows)
    assert golden.digest("fpl", golden.released("fpl"))["words"] != RECORDED["cases"]["fpl"]["words"]


def test_the_name_of_a_case_is_the_label_of_its_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cases.STREAMS, "renamed", cases.STREAMS["fpl"])
    assert golden.digest("renamed", golden.released("renamed"))["words"] != RECORDED["cases"]["fpl"]["words"]
