"""What meets noise in a release, for the tests of its privacy."""

import pytest

from streampca.privacy.outlet import Outlet


@pytest.fixture
def transcript(monkeypatch):
    """Each vector that meets noise (kind, exact, sd), and what was released of it; the latter may be prescribed."""

    def listed(mechanism, rows, outputs=None):
        hidden, released, release = [], [], Outlet.release

        def noted(self, kind, exact, draw, std=0.0):
            value = release(self, kind, exact, draw, std) if outputs is None else outputs[len(hidden)].copy()
            hidden.append((kind, exact, std))
            released.append(value.copy())
            return value

        with monkeypatch.context() as patch:
            patch.setattr(Outlet, "release", noted)
            return hidden, released, mechanism.release(rows, seed=0)

    return listed
