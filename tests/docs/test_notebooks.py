"""Cards of a notebook in a real kernel, beside `tests/views/test_notebook.py`: `pytest -m long tests/docs`."""

import os
from pathlib import Path

import pytest

import streampca

CARDS = [
    """
import numpy as np, streampca as sp
rows = np.random.default_rng(0).normal(size=(2_000, 4)) * 0.3
stream = sp.Stream(sp.PrivateFPL(n_components=2, epsilon=1.0, delta=1e-6, release_every=100), row_norm=1.0)
with stream.watch(total=4_000, every=0.01):
    stream.push_many(rows)
""",
    "for step in stream.watch(rows, public=True): pass",
    "stream",
    "stream.release",
]


@pytest.mark.long
@pytest.mark.filterwarnings("default")
def test_cards_in_a_kernel() -> None:
    nbformat, nbclient, _ = (
        pytest.importorskip(name, reason="needs the extra dev") for name in ("nbformat", "nbclient", "ipykernel")
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CARDS])
    here = {"cwd": str(Path.cwd()), "env": {**os.environ, "PYTHONPATH": str(Path(streampca.__file__).parents[1])}}
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute(**here)
    shown = ["".join(output.get("data", {}).get("text/html", "") for output in cell.outputs) for cell in notebook.cells]
    assert ["2,000 of 4,000 rows" in shown[0], "4,000 of 4,000 rows" in shown[1]] == [True, True]
    assert ["Curator only" in html for html in shown] == [True, False, True, False]
    assert all("<" in html for html in shown)
