"""Type checkers know the attributes of fitted estimators."""

import re
from pathlib import Path

import numpy as np
import pytest

from streampca.sklearn import PrivatePCA

api = pytest.importorskip("mypy.api")
ROOT = Path(__file__).parents[2]


@pytest.mark.ci
def test_fitted_attributes_have_types(tmp_path: Path) -> None:
    made = PrivatePCA(2, row_norm=1.0).fit(np.random.default_rng(0).normal(size=(100, 3)))
    fitted = [name for name in vars(made) if name.endswith("_") and not name.startswith("_")]
    assert {"components_", "mean_", "release_", "n_clear_"} <= set(fitted) <= set(PrivatePCA.__annotations__)
    code = "from streampca.sklearn import PrivatePCA\n" + "".join(f"reveal_type(PrivatePCA().{n})\n" for n in fitted)
    (tmp_path / "code.py").write_text(code)
    config = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(tmp_path)]
    out, _, _ = api.run([*config, "--follow-imports=silent", str(tmp_path / "code.py")])
    revealed = re.findall(r'Revealed type is "(.*)"', out)
    assert len(revealed) == len(fitted), out
    assert "Any" not in revealed
