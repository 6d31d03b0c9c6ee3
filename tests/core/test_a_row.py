"""How much code a row meets, and that no object reaches into another one."""

import ast
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streampca as sp

PACKAGE = Path(sp.__file__).parent


@pytest.mark.usefixtures("compiled_kernels")
def test_a_row_takes_few_calls_through_few_files() -> None:
    """Push a row and read basis and eigenvalues: d = 20, a release every row, tracking, live regret."""
    d, warm, count = 20, 20_000, 400
    rows = np.random.default_rng(0).normal(size=(warm + count, d)) * np.linspace(1.0, 0.1, d) / 4.0
    algorithm = sp.PrivateFPL(
        n_components=5, epsilon=1.0, release_every=1, horizon=100_000, solver="tracking", center=False
    )
    stream = sp.Stream(algorithm, row_norm=1.0)
    stream.push_many(rows[:warm])
    calls: Counter[str] = Counter()
    per_row: list[set[str]] = []

    def profile(frame: Any, event: str, arg: object) -> None:
        name = frame.f_code.co_filename
        if event == "call":
            calls[name] += 1
            per_row[-1].add(name)

    for row in rows[warm:]:
        per_row.append(set())
        sys.setprofile(profile)
        try:
            release = stream.push(row).release
            basis, values = release.subspace.basis, release.eigenvalues  # type: ignore[union-attr]
        finally:
            sys.setprofile(None)
        assert basis.shape == (d, 5)
        assert values.shape == (5,)
    assert sum(calls.values()) / count <= 26.0, calls
    plain = [len({name for name in files if str(PACKAGE) in name}) for files in per_row]
    assert np.median(plain) <= 12, Counter(plain)
    assert stream.regret.now().t == warm + count


def test_no_object_touches_another_ones_private_attributes() -> None:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        # What is at module level, and what other libraries hand out under such names, belongs to nobody's object.
        own = {"self", "cls", "sys", "os", "scipy", "np"}
        for node in ast.walk(tree):
            if not isinstance(node, ast.Attribute) or not node.attr.startswith("_") or node.attr.startswith("__"):
                continue
            of_itself = isinstance(node.value, ast.Name) and node.value.id in own
            if not of_itself and ast.unparse(node.value) != "super()" and node.attr not in NAMED_TUPLE:
                found.append(f"{path.relative_to(PACKAGE)}:{node.lineno}: {ast.unparse(node)}")
    assert not found, "\n".join(found)


#: Public methods of named tuples, and attributes of other libraries' objects.
NAMED_TUPLE = {"_replace", "_fields", "_asdict", "_make", "_jsc", "_jvm", "_exit"}
