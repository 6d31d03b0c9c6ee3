"""Tutorials as notebooks, in a real kernel: `pytest -m long tests/docs`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

import streampca

TUTORIALS = sorted(Path(streampca.__file__).parents[1].glob("docs/tutorials/*_user.py"))
CARDS = [
    """
    import numpy as np, streampca as sp
    rows = np.random.default_rng(0).normal(size=(2_000, 4)) * 0.3
    stream = sp.Stream(sp.PrivateFPL(n_components=2, epsilon=1.0, delta=1e-6, release_every=100))
    with stream.watch(total=4_000, every=0.01):
        stream.push_many(rows)
    """,
    "for step in stream.watch(rows, public=True): pass",
    "stream",
    "stream.release",
    "stream.guarantee",
    "stream.regret",
    "sp.plan(n_rows=5_000, n_features=4, n_components=2, epsilon=1.0, delta=1e-6)",
]


def executed(cells: list[str]) -> list[list[dict[str, Any]]]:
    """The outputs of the cells."""
    nbformat = pytest.importorskip("nbformat", reason="needs the extra dev")
    nbclient = pytest.importorskip("nbclient", reason="needs the extra dev")
    pytest.importorskip("ipykernel", reason="needs the extra dev")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    here = {"cwd": str(Path.cwd()), "env": {**os.environ, "PYTHONPATH": str(Path(streampca.__file__).parents[1])}}
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute(**here)
    return [cell.outputs for cell in notebook.cells]


@pytest.mark.long
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_is_a_notebook(path: Path) -> None:
    cells = re.split(r"^# %%", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    outputs = executed([f"#{cell}" if i else cell for i, cell in enumerate(cells)])
    assert sum(bool(output) for output in outputs) > len(cells) // 2


@pytest.mark.long
@pytest.mark.filterwarnings("default")
def test_cards_in_a_kernel() -> None:
    import textwrap

    outputs = executed([textwrap.dedent(cell) for cell in CARDS])
    shown = ["".join(output.get("data", {}).get("text/html", "") for output in cell) for cell in outputs]
    assert "2,000 of 4,000 rows" in shown[0]
    assert "Curator only" in shown[0]
    assert "4,000 of 4,000 rows" in shown[1]
    assert "Curator only" not in shown[1]
    assert all("<" in html for html in shown)
    assert "Curator only" in shown[2]
    assert "Curator only" in shown[5]
