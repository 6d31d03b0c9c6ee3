import subprocess
import sys

import pytest

import streampca as sp


def test_every_public_name_is_there() -> None:
    for name in sp.__all__:
        assert getattr(sp, name) is not None
    assert set(sp.__all__) <= set(dir(sp))
    assert set(sp.__all__) == set(sp._HOME) | set(sp._MODULES)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = sp.Nothing


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, streampca; print(any(m in sys.modules for m in ('numpy', 'scipy', 'pandas', 'river')))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_members_of_a_stream() -> None:
    """The list may change by a decision only; what stores and adapters need belongs to the engine."""
    stream = sp.Stream(sp.Oja(n_components=1), row_norm=1.0)
    assert {name for name in dir(stream) if name[0] != "_"} == {
        "push", "push_many", "push_block", "leaves", "absorb", "run", "arun", "finish", "resume", "watch", "close",
        "tick", "close_period",
        "t", "release", "guarantee", "algorithm", "features", "row_norm", "warmup_left",
        "regret", "private_regret", "admission", "engine",
    }  # fmt: skip
