"""What is shipped: vendored files are the published ones, and builds are reproducible."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
STATIC = ROOT / "streampca" / "views" / "static"

#: SHA-256 of dist/uPlot.iife.min.js and dist/uPlot.min.css in https://registry.npmjs.org/uplot/-/uplot-1.6.32.tgz,
#: and of its LICENSE under a line that names the package.
VENDORED = {
    "uplot.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uplot.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "uplot-LICENSE.txt": "069a9980d8ce1b5eb90123d96aa986d3e67b5edbca759e2448d7935c031ea005",
}


def test_vendored_files_are_the_published_ones():
    assert {name: hashlib.sha256((STATIC / name).read_bytes()).hexdigest() for name in VENDORED} == VENDORED


@pytest.mark.ci
def test_the_same_source_builds_the_same_wheel(tmp_path):
    """Two builds with compiled kernels, from folders with other names and other times of files."""
    pytest.importorskip("hatchling")
    sums = set()
    for name in ("first", "second"):
        source, out = tmp_path / name, tmp_path / f"{name}-wheel"
        source.mkdir()
        shutil.copytree(ROOT / "streampca", source / "streampca", copy_function=shutil.copyfile,
                        ignore=shutil.ignore_patterns("__pycache__"))  # fmt: skip
        shutil.copytree(ROOT / "scenarios", source / "scenarios", copy_function=shutil.copyfile)
        for file in ("pyproject.toml", "README.md", "LICENSE", "hatch_build.py"):
            shutil.copyfile(ROOT / file, source / file)
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
        compiled = {**os.environ, "STREAMPCA_NATIVE": "1"}
        subprocess.run(command, cwd=source, check=True, capture_output=True, env=compiled)
        (wheel,) = out.glob("*.whl")
        sums.add((wheel.name, hashlib.sha256(wheel.read_bytes()).hexdigest()))
    assert len(sums) == 1
