"""Every check that river has for transformers, on every adapter, by name. None is skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from river.checks import yield_checks

from streampca.integrations.river import PrivateOjaPCA, PrivatePCA, PrivateWindowPCA

ADAPTERS = [PrivatePCA, PrivateWindowPCA, PrivateOjaPCA]


def cases() -> Iterator[object]:
    for adapter in ADAPTERS:
        for check in yield_checks(adapter()):
            yield pytest.param(adapter, check, id=f"{adapter.__name__}-{check.__name__}")


@pytest.mark.parametrize(("adapter", "check"), list(cases()))
def test_river_check(adapter: type[PrivatePCA], check: Callable[[object], None]) -> None:
    check(adapter())


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_none_is_skipped(adapter: type[PrivatePCA]) -> None:
    model = adapter()
    assert model._unit_test_skips() == set()
    assert len(list(yield_checks(model))) >= 29
