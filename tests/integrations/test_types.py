"""Type checkers know the attributes of fitted estimators."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streampca.sklearn import PrivatePCA

api = pytest.importorskip("mypy.api")
ROOT = Path(__file__).parents[2]


@pytest.mark.ci
def test_fitted_attributes_have_types(tmp_path: Path) -> None:
    fitted = [name for name in PrivatePCA.__annotations__ if name.endswith("_") and name != "_"]
    assert {"components_", "mean_", "release_", "explained_variance_ratio_"} <= set(fitted)
    code = "from streampca.sklearn import PrivatePCA\n" + "".join(f"reveal_type(PrivatePCA().{n})\n" for n in fitted)
    (tmp_path / "code.py").write_text(code)
    config = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(tmp_path)]
    out, _, _ = api.run([*config, "--follow-imports=silent", str(tmp_path / "code.py")])
    revealed = re.findall(r'Revealed type is "(.*)"', out)
    assert len(revealed) == len(fitted), out
    assert "Any" not in revealed
