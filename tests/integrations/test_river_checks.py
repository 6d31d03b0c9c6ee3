"""Every check that river has for transformers, on every adapter, by name. None is skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from river import datasets
from river.checks import yield_checks

from streampca.river import PrivateBlockPCA, PrivateOjaPCA, PrivatePCA, PrivateWindowPCA
from streampca.river_monitors import SubspaceAnomaly

ADAPTERS = [PrivatePCA, PrivateWindowPCA, PrivateOjaPCA, PrivateBlockPCA]


def cases() -> Iterator[object]:
    for adapter in ADAPTERS:
        for check in yield_checks(adapter(row_norm=1.0)):
            yield pytest.param(adapter, check, id=f"{adapter.__name__}-{check.__name__}")


@pytest.mark.parametrize(("adapter", "check"), list(cases()))
def test_river_check(adapter: type[PrivatePCA], check: Callable[[object], None]) -> None:
    check(adapter(row_norm=1.0))


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_none_is_skipped(adapter: type[PrivatePCA]) -> None:
    model = adapter(row_norm=1.0)
    assert model._unit_test_skips() == set()
    assert len(list(yield_checks(model))) >= 29


class Labelled:
    """Rows near a line, but for every tenth, which is far from it; in place of river's dataset, which is downloaded."""

    def take(self, n: int) -> Iterator[tuple[dict[str, float], bool]]:
        source = np.random.default_rng(0)
        for i in range(n):
            row = source.normal() * np.full(5, 0.3) if i % 10 else source.normal(size=5) * 0.3
            yield dict(zip("abcde", row.tolist(), strict=True)), i % 10 == 0


def anomaly_checks() -> list[Callable[[object], None]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets, "CreditCard", Labelled)
        return list(yield_checks(SubspaceAnomaly(PrivatePCA(row_norm=1.0, release_every=1))))


@pytest.mark.parametrize("check", anomaly_checks(), ids=lambda check: check.__name__)
def test_river_check_of_anomaly_scores(check: Callable[[object], None]) -> None:
    check(SubspaceAnomaly(PrivatePCA(n_components=1, release_every=50, row_norm=1.0)))
