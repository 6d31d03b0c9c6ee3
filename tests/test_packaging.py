"""What an installer and an index see: one version, one address, types, and files that belong in a wheel."""

import re
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import streampca

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_version_is_in_one_place() -> None:
    assert PROJECT["dynamic"] == ["version"]
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {streampca.__version__}\n" in cited


def test_the_address_is_the_same_everywhere() -> None:
    source = PROJECT["urls"]["Source"]
    assert f"repository-code: {source}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"git clone {source}\n" in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_types_are_shipped() -> None:
    assert (ROOT / "streampca" / "py.typed").is_file()
    assert "Typing :: Typed" in PROJECT["classifiers"]


def test_links_of_the_readme_work_on_an_index() -> None:
    text = (ROOT / PROJECT["readme"]).read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert links
    assert [link for link in links if not link.startswith(("https://", "#"))] == []


@pytest.mark.parametrize(("package", "extra"), [("sklearn", "sklearn"), ("matplotlib", "report")])
def test_python_says_which_extra_is_missing(monkeypatch: pytest.MonkeyPatch, package: str, extra: str) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)  # type: ignore[arg-type]
    monkeypatch.delitem(sys.modules, "streampca.sklearn", raising=False)
    stream = streampca.Stream(
        streampca.PrivateFPL(n_components=1, epsilon=1.0, center=False, release_every=5), row_norm=1.0, regret=None
    )
    release = stream.push_many(np.zeros((5, 3))).releases[-1]
    with pytest.raises(ModuleNotFoundError, match=rf"pip install 'streampca\[{extra}\]'"):
        import_module("streampca.sklearn") if package == "sklearn" else release.plot("scree")
