"""Which kernels a process uses: the extension where it exists, numpy where it is missing, foreign or switched off."""

import os
import subprocess
import sys

import pytest

import streampca as sp
from streampca import _native

STATE = "import streampca as sp; from streampca import _native as n; print(n.compiled is not None); print(sp.kernels())"
WITHOUT = "import sys; sys.modules['streampca._native.kernels'] = None; "
OTHER = (
    "import sys, types; m = types.ModuleType('streampca._native.kernels'); m.VERSION = 0; "
    "sys.modules['streampca._native.kernels'] = m; "
)


def run(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env={**os.environ, **environment}
    )
    return done.stdout.splitlines()


@pytest.mark.skipif(not _native.available(), reason="the kernels are not compiled")
def test_a_process_uses_compiled_kernels_where_they_exist():
    assert run(STATE, STREAMPCA_KERNELS="") == ["True", f"native {_native.VERSION}"]


@pytest.mark.parametrize(
    ("before", "environment", "reason"),
    [
        ("", {"STREAMPCA_KERNELS": "numpy"}, "switched off by STREAMPCA_KERNELS=numpy"),
        (WITHOUT, {}, "no compiled kernels; install a C compiler, then reinstall"),
        (OTHER, {}, "belong to another version; install streampca again"),
    ],
)
def test_without_them_numpy_computes_and_the_reason_is_given(before, environment, reason):
    compiled, described = run(before + STATE, **({"STREAMPCA_KERNELS": ""} | environment))
    assert compiled == "False"
    assert described.startswith("numpy ")
    assert reason in described


def test_the_switch_returns_the_state_before():
    before = _native.use(False)
    try:
        assert sp.kernels().startswith("numpy ")
        assert _native.use(True) is False
        assert _native.use(False) is _native.available()
    finally:
        _native.use(before)
