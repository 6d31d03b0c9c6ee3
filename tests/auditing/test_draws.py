"""In mechanisms and processors nothing random is drawn, except from what an outlet handed out."""

import ast
from pathlib import Path

import pytest

import streampca as sp

PACKAGE = Path(sp.__file__).parent
FILES = [path for room in ("mechanisms", "processors") for path in sorted((PACKAGE / room).glob("*.py"))]
DRAWS = {
    "normal", "laplace", "words", "uniform", "permutation", "random", "integers", "more", "urandom", "token_bytes",
    "randbytes", "standard_normal", "gauss", "choice", "permuted", "exponential", "standard_gamma", "chisquare",
    "binomial", "geometric", "multivariate_normal", "rvs",
}  # fmt: skip
#: Modules from which nothing is imported.
SOURCES = {"random", "secrets", "numpy.random", "scipy.stats"}
#: Randomness that hides nothing: the public basis of a start.
PUBLIC = {
    ("processors/oja.py", "noise.normal"),
    # Releases that are simulated to choose a map, from a constant seed.
    ("mechanisms/norm_maps.py", "Randomness.from_seed(_SEED).stream('norm maps', name).normal"),
    # The name under which a ledger books a release.
    ("mechanisms/base.py", "os.urandom"),
}


def found_in(text):
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            found += [f"from {node.module} import {one.name}" for one in node.names if one.name in DRAWS]
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            modules = {one.name for one in node.names} | {getattr(node, "module", None)}
            found += [f"import {module}" for module in modules & SOURCES]
        if isinstance(node, ast.Attribute) and node.attr in DRAWS:
            owner = ast.unparse(node.value)
            if owner != "draws" and not owner.startswith("outlet.hide("):
                found.append(ast.unparse(node))
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_draws_come_from_the_outlet(path):
    name = f"{path.parent.name}/{path.name}"
    assert {(name, one) for one in found_in(path.read_text(encoding="utf-8"))} <= PUBLIC


def test_a_draw_past_the_outlet_is_found():
    for text in (
        "np.random.default_rng(0).normal(3)", "self.source.draws(1, name).normal(2)", "NoiseStream(key).laplace(0, 1)",
        "os.urandom(4)", "from os import urandom", "from numpy.random import default_rng", "import secrets",
        "rng.standard_normal(3)", "np.random.default_rng().normal(size=3) + outlet.release(1)",
    ):  # fmt: skip
        assert found_in(text), text
