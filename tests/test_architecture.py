"""The example of the architecture page is an algorithm that works. `lint-imports` checks that imports flow one way."""

import ast
import math
import re
from collections import Counter
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import numpy as np
import pytest

import streampca as sp
from streampca.linalg.svec import svec

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "project" / "architecture.md"


@pytest.fixture
def algorithm(independent_noise):
    return independent_noise(n_components=2, epsilon=1.0, delta=1e-6, horizon=64, release_every=4)


def rows(n=64):
    return np.random.default_rng(0).normal(size=(n, 5)) / 4.0


def test_the_example_streams_in_blocks_and_single_rows_to_the_same_bits(algorithm):
    one, many = sp.Stream(algorithm, row_norm=1.0, seed=1), sp.Stream(algorithm, row_norm=1.0, seed=1)
    single = [step.release for row in rows() if (step := one.push(row)).release is not None]
    block = list(many.push_many(rows()).releases)
    assert len(single) == 16
    assert [release.to_json() for release in single] == [release.to_json() for release in block]
    assert one.guarantee.mu == pytest.approx(sp.Budget(1.0, 1e-6).mu)


def test_its_noise_is_independent_and_of_the_stated_size(algorithm):
    streams = (sp.Stream(algorithm, row_norm=1.0, seed=seed) for seed in range(60))
    noise = np.array([svec(r.gram) for stream in streams for r in stream.push_many(np.zeros((64, 5))).releases])
    sigma = 4.0 / sp.Budget(1.0, 1e-6).mu
    # 14 400 normals: the standard error of the ratio is 0.6 %, so five of them fail with chance 6e-7.
    assert math.sqrt(np.mean(noise**2)) / sigma == pytest.approx(1.0, abs=0.03)
    following = np.mean(noise[:-1] * noise[1:]) / sigma**2
    assert abs(following) < 5.0 / math.sqrt(noise[1:].size)


def test_every_file_that_the_page_names_exists():
    named = re.findall(r"`([a-z_/]+(?:\.py|/))`", PAGE.read_text(encoding="utf-8").split("## Configuration")[0])
    folder = ROOT / "streampca"
    # A file named after a folder in the same row of the table lies in that folder.
    folders = [folder, *(folder / name for name in named if name.endswith("/"))]
    assert len(named) > 20
    for name in named:
        assert any((where / name).exists() for where in folders), name


#: Imports of own modules inside functions, by module. A number may only fall, and a module may only leave.
LAZY = {
    # numpy reads the number of BLAS threads when it is imported; the page needs the extra `serve`.
    "streampca.cli": 1, "streampca.cli.run": 1, "streampca.sources.synthetic": 1,
}  # fmt: skip


def statements(node, inside=False):
    """Imports below a node, each with whether it is inside a function. Expressions hold none."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child, inside
        elif not isinstance(child, ast.expr):
            yield from statements(child, inside or isinstance(child, ast.FunctionDef))


@cache
def imports():
    """Modules that each module imports, those under `TYPE_CHECKING` too, and how many times inside of functions."""
    files = {}
    for file in sorted((ROOT / "streampca").rglob("*.py")):
        parts = file.relative_to(ROOT).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    files.pop("streampca")  # the table of public names, which imports each when it is first used
    edges, lazy = {module: set() for module in files}, Counter()
    for module, file in files.items():
        for node, inside in statements(ast.parse(file.read_text(encoding="utf-8"))):
            assert getattr(node, "level", 0) == 0, f"{module}: imports are absolute"
            prefix = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            names = [prefix + alias.name for alias in node.names]
            known = {name if name in files else name.rpartition(".")[0] for name in names}
            found = {name for name in known if name.partition(".")[0] == "streampca"}
            lazy[module] += bool(found) and inside
            edges[module] |= found & files.keys() - {module}
    return edges, lazy


def test_no_circle():
    edges, _ = imports()
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as circle:
        pytest.fail(str(circle.args[1]))


def test_own_modules_are_imported_at_the_top():
    _, lazy = imports()
    assert {m: count for m, count in lazy.items() if count > LAZY.get(m, 0)} == {}
