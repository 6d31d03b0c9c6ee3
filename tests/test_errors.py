"""Each error has its fields, and Python and the command line render it in their own words."""

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import streampca as sp
from streampca import errors
from streampca.cli.messages import _SCALES, in_flags
from streampca.errors import (
    SCALE,
    BadParameterError,
    BadRowError,
    MissingParametersError,
    SourceError,
    StreamPCAError,
    UsageError,
    reason,
)  # fmt: skip
from streampca.river import PrivatePCA as RiverPCA
from streampca.sklearn import PrivatePCA as SklearnPCA

CLASSES = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, StreamPCAError)]
#: An error, its fields in order, its message in Python, and on the command line if that differs.
CASES = [
    (BadParameterError("horizon", 0, "an integer", advice="Or use horizon=None"),
     ("horizon", "an integer", "Or use horizon=None", "0"),
     "horizon=0: expected an integer. Or use horizon=None.", "--horizon 0: expected an integer. Or omit --horizon."),
    (BadParameterError("drift", -1.0, "a number"), ("drift", "a number", "", "-1.0"),
     "drift=-1.0: expected a number.", "--set solver.drift=-1.0: expected a number."),
    (BadParameterError("header", True, "False"), ("header", "False", "", "True"),
     "header=True: expected False.", "--read header=yes: expected False."),
    (BadParameterError("rows", np.ones((2, 3)), "(n, 2)"), ("rows", "(n, 2)", "", "<ndarray of shape (2, 3)>"),
     "rows=<ndarray of shape (2, 3)>: expected (n, 2).", None),
    (BadParameterError("key", ..., "32 bytes"), ("key", "32 bytes", "", None), "key: expected 32 bytes.", None),
    (MissingParametersError(["bounds"]), (("bounds",),), SCALE, f"{SCALE} {_SCALES}"),
    (MissingParametersError(["n_components", "window", "clip", "bounds"]),
     (("n_components", "window", "clip", "bounds"),),
     "Missing: n_components (number of components), window (rows that count), clip and bounds or row_norm.",
     "Missing: -k (number of components), --window (rows that count), --set clip and --bounds or --row-norm."),
    (BadRowError(3, "2 values, expected 4"), (3, "2 values, expected 4"), "row 3: 2 values, expected 4.", None),
    (BadRowError(None, "no row"), (None, "no row"), "no row.", None),
    (SourceError("a.csv", "no 'x'; check columns=", line=7), ("a.csv", "no 'x'; check columns=", 7),
     "a.csv, line 7: no 'x'; check columns=.", "a.csv, line 7: no 'x'; check --columns."),
    (SourceError(None, "is this a table?"), (None, "is this a table?", None), "is this a table?", None),
    *((one("no\nmore of row_norm=2"), (), "no more of row_norm=2.", "no more of --row-norm 2.")
      for one in CLASSES if one not in (BadParameterError, BadRowError, MissingParametersError, SourceError)),
]  # fmt: skip


@pytest.mark.parametrize(("error", "held", "python", "shell"), CASES, ids=lambda case: type(case).__name__)
def test_each_error_at_each_door(error: StreamPCAError, held: tuple[object, ...], python: str, shell: str) -> None:
    assert (tuple(vars(error).values()), str(error), reason(error)) == (held, python, python.removesuffix("."))
    assert in_flags(error, ["run", "FILE", "--set", "solver.drift=-1"]) == (shell or python)
    copied = pickle.loads(pickle.dumps(error))
    assert (type(copied), str(copied), vars(copied)) == (type(error), python, vars(error))


def test_every_class_has_a_case_and_the_name_of_an_error() -> None:
    assert {type(error) for error, *_ in CASES} == {one for one in CLASSES if one.__name__.endswith("Error")}


def test_an_error_holds_no_more_of_an_input_than_its_message() -> None:
    with pytest.raises(BadParameterError) as caught:
        sp.Randomness(key=b"SECRET")
    assert b"SECRET" not in pickle.dumps(caught.value)
    assert len(pickle.dumps(BadParameterError("features", ["name"] * 10_000, "fewer"))) < 500


def test_the_shell_names_the_option_that_was_given(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["-k", "1", "--epsilon", "1", "--delta", "1e-6", "--row-norm", "1", "--set", "solver=smoothed"]
    for given, message in (
        (["--horizon", "0"], "--horizon 0: expected an integer >= 1 or None."),
        (["--set", "solver.drift=-1"], "--set solver.drift=-1.0: expected a finite number of at least 0."),
        (["--set", "regret.every=0"], "--set regret.every=0: expected an integer >= 1."),
    ):
        assert sp.cli.main(["run", "FILE", *options, *given]) == 2
        assert capsys.readouterr().err == f"streampca: {message}\n"


ROWS = np.zeros((4, 2))
_FPL = sp.PrivateFPL(n_components=1, epsilon=1.0, release_every=1, center=False)
#: Every interface that absorbs or releases rows, with parameters of the scale.
DOORS = {
    "Stream": lambda **scale: sp.Stream(_FPL, **scale),
    "UserStream": lambda **scale: sp.UserStream(replace(_FPL, max_rows_per_user=2), **scale),
    "release": lambda **scale: sp.GaussianCovariance(n_components=1, epsilon=1.0, center=False).release(ROWS, **scale),
    "scikit-learn": lambda **scale: SklearnPCA(**scale).fit(ROWS),
    "partial_fit": lambda **scale: SklearnPCA(**scale).partial_fit(ROWS),
    "river": lambda **scale: RiverPCA(**scale, release_every=1).learn_one({"a": 0.0, "b": 0.0}),
    "learn_many": lambda **scale: RiverPCA(**scale, release_every=1).learn_many(pd.DataFrame(ROWS)),
}


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_every_door_requires_one_scale_and_refuses_two_in_one_sentence(door: Callable[..., object]) -> None:
    with pytest.raises(MissingParametersError) as caught:
        door()
    assert str(caught.value) == SCALE
    with pytest.raises(UsageError) as both:
        door(bounds=(-1.0, 1.0), row_norm=1.0)
    assert str(both.value).startswith(SCALE)
    for scale in ({"bounds": (-1.0, 1.0)}, {"row_norm": 3.0}):
        door(**scale)


def test_the_shell_requires_one_scale_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "rows.csv"
    table.write_text("a,b\n0,0\n")
    budget = ["-k", "1", "--epsilon", "1", "--delta", "1e-6"]
    for command in (["run"], ["release", "--mechanism", "gaussian"]):
        for given in (budget, [*budget, "--bounds", "-1:1", "--row-norm", "1"]):
            assert sp.cli.main([command[0], str(table), *command[1:], *given]) == 2
            assert capsys.readouterr().err.startswith(f"streampca: {SCALE} ")
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]
