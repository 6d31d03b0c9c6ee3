import json
import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streampca as sp
from streampca.errors import UsageError
from streampca.release.file import Header, ReleaseLines

ALGORITHM = sp.PrivateFPL(n_components=2, epsilon=1.0, center=False, release_every=20)
BOUNDS = ([-1.0, -2.0, 0.0, -3.0], [1.0, 2.0, 5.0, 3.0])


def made(**options: object) -> list[sp.Release]:
    algorithm = replace(ALGORITHM, **{name: options.pop(name) for name in ("center", "solver") if name in options})
    given = {"features": list("abcd"), "row_norm": None if "bounds" in options else 3.0} | options
    stream = sp.Stream(algorithm, seed=1, **given)  # type: ignore[arg-type]
    return stream.push_many(np.random.default_rng(0).normal(size=(100, 4))).releases


def written(path: Path, releases: Sequence[sp.Release]) -> Path:
    lines = [Header(releases[0].terms, {"k": 2}).to_json(), *(r.to_json(terms=False) for r in releases)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def bare(path: Path, releases: Sequence[sp.Release]) -> Path:
    path.write_text("\n\n".join(r.to_json() for r in releases), encoding="utf-8")
    return path


@pytest.mark.parametrize("write", [written, bare])
@pytest.mark.parametrize(
    "options", [{}, {"features": None}, {"bounds": BOUNDS}, {"center": True}, {"row_norm": 1.0}, {"solver": "smoothed"}]
)
def test_a_file_is_read_back_to_the_bit(tmp_path: Path, write, options) -> None:  # type: ignore[no-untyped-def]
    releases = made(**options)
    again = list(sp.read_releases(write(tmp_path / "releases.jsonl", releases)))
    assert [r.to_json() for r in again] == [r.to_json() for r in releases]
    rows = np.random.default_rng(1).normal(size=(7, 4))
    for a, b in zip(again, releases, strict=True):
        assert (a.guarantee, a.features, a.details, a.noise_std) == (b.guarantee, b.features, b.details, b.noise_std)
        np.testing.assert_array_equal(a.gram, b.gram)
        np.testing.assert_array_equal(a.eigenvalues, b.eigenvalues)
        np.testing.assert_array_equal(a.transform(rows), b.transform(rows))
        assert ("smoothed" in json.loads(b.to_json())) == (b.smoothed is not None) == ("solver" in options)
        for other in (a, pickle.loads(pickle.dumps(b)), b.replaced(t=7)) if "solver" in options else ():
            np.testing.assert_allclose(other.smoothed, b.smoothed, rtol=1e-15)  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="read-only"):
                other.smoothed[:] = 0.0  # type: ignore[index]
        assert sp.Release.from_json(b.to_json(gram=False)).smoothed is None


def test_what_is_shared_is_written_once(tmp_path: Path) -> None:
    releases = made(bounds=BOUNDS)
    head, *lines = written(tmp_path / "releases.jsonl", releases).read_text().splitlines()
    assert json.loads(head)["guarantee"] == releases[0].guarantee.to_dict()
    for line, release in zip(lines, releases, strict=True):
        assert set(json.loads(line)) == {
            "t", "n_components", "basis", "eigenvalues", "noise_std", "details", "gram", "terms",
        }  # fmt: skip
        assert len(line) < 0.55 * len(release.to_json())
    lines_read = ReleaseLines("x")
    assert lines_read.read(head) is None
    assert lines_read.header is not None
    assert lines_read.header.parameters == {"k": 2}
    again = list(sp.read_releases(tmp_path / "releases.jsonl"))
    assert all(release.terms is again[0].terms for release in again)


def test_lines_are_read_as_they_are_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path / "releases.jsonl", made())
    with path.open("a") as file:
        file.write("nonsense\n")
    assert [release.t for release in islice(sp.read_releases(path), 5)] == [20, 40, 60, 80, 100]
    with pytest.raises(UsageError, match=r"releases\.jsonl, line 7: not a release"):
        list(sp.read_releases(path))


def test_a_last_line_that_is_cut_off_is_left_out(tmp_path: Path) -> None:
    text = written(tmp_path / "releases.jsonl", made()).read_text()
    path = tmp_path / "growing.jsonl"
    for end in range(len(text) - 300, len(text) - 1):
        path.write_text(text[:end])
        assert len(list(sp.read_releases(path))) == 4
    path.write_text(text[:-1])
    assert len(list(sp.read_releases(path))) == 5


def test_a_line_never_takes_the_guarantee_of_another_run(tmp_path: Path) -> None:
    one, other = made(), made(row_norm=2.0)
    path = written(tmp_path / "one.jsonl", one)
    with path.open("a") as file:
        file.write(other[0].to_json(terms=False) + "\n")
    with pytest.raises(UsageError, match=r"line 7.*its header of terms"):
        list(sp.read_releases(path))
    with pytest.raises(UsageError, match="its header of terms"):
        sp.Release.from_json(one[0].to_json(terms=False))
    # Files may be joined: a header holds for the lines after it.
    joined = tmp_path / "joined.jsonl"
    joined.write_text(written(tmp_path / "1.jsonl", one).read_text() + written(tmp_path / "2.jsonl", other).read_text())
    assert [r.row_norm for r in sp.read_releases(joined)] == [3.0] * 5 + [2.0] * 5


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nonsense", "not a release"),
        ("[1]", "not a release"),
        ("{}", "not a release"),
        ('{"t": 1, "row_norm": null}', "not a release"),
        ('{"kind": "header"}', "not the header"),
        ('{"kind": "header", "format": 4, "parameters": {}}', "another version"),
        ('{"kind": "header", "format": 3, "terms": "x", "parameters": {}}', "not the header"),
        ('{"kind": "header", "format": "x", "parameters": 3}', "not the header"),
    ],
)
def test_what_is_no_such_file_is_told_with_its_line(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(UsageError, match=rf"a\.jsonl, line 1: .*{words}"):
        list(sp.read_releases(path))
    path.write_bytes(b"\x00SQLite\xff\xfe\n")
    with pytest.raises(UsageError, match="line 1"):
        list(sp.read_releases(path))
    with pytest.raises(FileNotFoundError):
        list(sp.read_releases(tmp_path / "none.jsonl"))


@pytest.mark.parametrize(
    "change",
    [
        lambda line: line.update(guarantee="x"),
        lambda line: line["guarantee"].update(theorem=float("nan")),
        lambda line: line["guarantee"].update(unit=["one row"]),
        lambda line: line.update(middle=[0.0, float("inf"), 0.0, 0.0]),
        lambda line: line.update(warmup=float("inf"), details={"count": float("nan")}),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_terms_that_could_not_be_written_again_are_no_terms(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], first: bool
) -> None:
    releases = made(bounds=BOUNDS)
    line = json.loads(Header(releases[0].terms, {}).to_json() if first else releases[0].to_json())
    change(line)
    (tmp_path / "a.jsonl").write_text(json.dumps(line) + "\n")
    with pytest.raises(UsageError, match=r"a\.jsonl, line 1: not "):
        list(sp.read_releases(tmp_path / "a.jsonl"))
