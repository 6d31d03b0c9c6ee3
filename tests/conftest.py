"""The suite runs with compiled kernels where the installation has them; CI runs parts of it with numpy too."""

import gc
import os
import re
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from interrupts import forked

from streampca import _native

# A busy machine is no failure. In CI (CI=true) hypothesis repeats its examples; elsewhere it looks for new ones.
settings.register_profile("suite", settings(), deadline=None, max_examples=50)
settings.load_profile("suite")


def pytest_configure(config: pytest.Config) -> None:
    """Small numbers of rows and large budgets are what most tests are about; `pytest.warns` still sees the warnings."""
    config.addinivalue_line("filterwarnings", "ignore::streampca.errors.StreamPCAWarning")


def pytest_collection_finish() -> None:
    """Modules and collected tests stay to the end: without them, a collection of garbage takes a tenth of the time."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail where every test must run and one was skipped: in CI, which installs what all of them need."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("STREAMPCA_SKIP_NOTHING") and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture
def compiled_kernels() -> Iterator[None]:
    """Compiled kernels during a test, which is skipped where there are none."""
    if not _native.available():
        pytest.skip("the kernels are not compiled")
    before = _native.use(True)
    yield
    _native.use(before)


@pytest.fixture
def in_child() -> Callable[[Callable[[], object]], int]:
    """Does something in a child process and gives its exit status: 0, or 1 if it raised."""

    return lambda work: os.waitstatus_to_exitcode(os.waitpid(forked(work), 0)[1])


@pytest.fixture
def independent_noise(monkeypatch: pytest.MonkeyPatch) -> type:
    """`IndependentNoise` of CONTRIBUTING.md."""
    module = types.ModuleType("independent_noise")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    page = Path(__file__).parents[1] / "CONTRIBUTING.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    exec(code, module.__dict__)
    kind: type = module.IndependentNoise
    return kind
