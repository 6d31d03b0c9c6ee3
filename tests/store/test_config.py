import json
import subprocess
import sys
from pathlib import Path

import pytest

from streampca.errors import StoreCorruptError
from streampca.store.config import load


@pytest.mark.parametrize(
    "value",
    [3, {"\x00class": "PrivateFPL", "with": 3}, {"\x00class": ["x"], "with": {}}, {"\x00class": "Store", "with": {}}],
)
def test_what_is_no_configuration_is_told(value: object) -> None:
    with pytest.raises(StoreCorruptError, match="cannot be read"):
        load(json.dumps(value if isinstance(value, int) else {"processor": value}))


def test_a_refused_parameter_is_not_repeated_at_any_length() -> None:
    given = {"n_components": 1, "epsilon": 1.0, "delta": 1e-6, "solver": "x" * 1000}
    with pytest.raises(StoreCorruptError, match="solver='x") as refused:
        load(json.dumps({"processor": {"\x00class": "PrivateFPL", "with": given}}))
    assert len(str(refused.value)) < 200


def test_a_durable_run_loads_no_other_algorithms(tmp_path: Path) -> None:
    """They load the most of scipy: an interrupt while a compiled module loads is an ImportError."""
    code = f"""if True:
        import sys
        import streampca as sp

        def stream(**more):
            return sp.Stream(sp.PrivateFPL(n_components=1, epsilon=1.0, delta=1e-6, horizon=9), seed=1, **more)

        stream().push([0.5, 0.5])
        with sp.Store({str(tmp_path / "run.db")!r}) as store:
            before = set(sys.modules)
            stream(store=store).push([0.5, 0.5])
            print(sorted(name for name in set(sys.modules) - before if name.startswith(("scipy", "streampca"))))
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
