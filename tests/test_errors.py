"""Each error has its fields, and Python and the command line render it in their own words."""

import pickle
import sys
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
from streampca.rows.names import NO_TYPES
from streampca.sklearn import PrivatePCA as SklearnPCA

Capsys = pytest.CaptureFixture[str]
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


ROWS = np.zeros((4, 2))
_FPL = sp.PrivateFPL(n_components=1, epsilon=1.0, release_every=1, center=False)
#: Every interface that absorbs or releases rows, with parameters of the scale.
DOORS = {
    "Stream": lambda **scale: sp.Stream(_FPL, **scale),
    "Stream of people": lambda **scale: sp.Stream(replace(_FPL, unit=sp.Person()), **scale),
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


BUDGET = "-k 1 --epsilon 1 --row-norm 1"
KNOWN = f"{BUDGET} --columns all"
PLAN = "plan --n-rows 20000 -d 10 --epsilon 1"
TUMBLING = "run rows.csv --columns all --algorithm tumbling --set mechanism"
NAME_THEM = (
    "has no types: name its numeric columns with --columns (or --columns all), or in --bounds. Nothing was spent."
)
ADDRESSES = ("https://user:secret@example.org/rows.csv", "HTTP://example.org/a?token=secret")
#: Words of the shell, and what the last line says.
MESSAGES = [
    *((f"{command} rows.csv", "Missing: -k (number of components), --epsilon (privacy budget, e.g. 1) and --bounds "
       "or --row-norm.") for command in ("run", "pca")),
    *((f"{command} rows.csv -k 1 --epsilon 1 {more}", SCALE)
      for command in ("run", "pca --mechanism gaussian") for more in ("", "--bounds -1:1 --row-norm 1")),
    *((f"{command} {file} {BUDGET}", f"{file} {NAME_THEM}") for command in ("run", "pca")
      for file in ("rows.csv", "words.csv", "rows.tsv", "rows.jsonl")),
    ("run rows.csv -k 1 --epsilon 1 --columns all --bounds private --set bounds.warmup=621",
     "--bounds private would use 621 rows to find the ranges, but rows.csv has 3. Give public bounds. Nothing was"),
    *((f"run {file} {KNOWN}", file) for file in ("none.csv", "empty.csv", "head.csv", "bare.csv", "open.csv")),
    # The option that was given is named, with its value.
    *((f"run rows.csv {KNOWN} {more}", words) for more, words in (
        ("--out words.csv", "words.csv exists already. Choose another name, or --force to replace it; the budget "
         "spent on it stays spent."),
        ("--out none/r.jsonl", "none/r.jsonl: there is no folder none. Create it first. Nothing was spent."),
        ("--regret r.csv --serve", "import of uvicorn halted"),
        ("--ledger l.db --data-set t",
         "there is no ledger l.db. Create it with `streampca ledger budget l.db --data-set NAME --epsilon 1`."),
        ("--ledger l.db", "--ledger and --data-set go together"), ("--algorithm nope", "--algorithm nope: there is"),
        ("--set store.commit_every=500", "goes with --store"), ("--set window", "--set window: expected KEY=VALUE."),
        ("--set window=3", "--window: PrivateFPL takes no"), ("--set foo=1", "--set foo: PrivateFPL takes no such"),
        ("--horizon 0", "--horizon 0: expected an integer >= 1 or None."), ("--delta 1", "--delta 1"),
        ("--release-every x", "--release-every x: expected a whole number of s, min"), ("--frobnicate", "--frobnicate"),
        ("--set solver=smoothed --set solver.drift=-1",
         "--set solver.drift=-1.0: expected a finite number of at least 0."),
        ("--set regret.every=0", "--set regret.every=0: expected an integer >= 1."),
        ("--set out.keep_every=0", "--set out.keep_every=0"), ("--set regret.ever=1", "use bounds.warmup"),
        ("--set out.gram=maybe", "--set out.gram=maybe: expected yes or no"),
        ("--on-missing cell --algorithm private-oja", "Pass --set missing.correct=no, or use PrivateFPL"),
        ("--on-missing cell --set missing.rates=0.01", "--set missing.rates=0.01: expected 'private', or public"),
        ("--on-missing cell --set missing.rates=a", "--set missing.rates=a: expected private, a share, or NAME=SHARE"),
        ("--set missing.correct=no", "--set missing.correct=no: only with --on-missing cell"),
        ("--set serve.port=80", "--set serve.port: it goes with --serve"),
        ("--set mechanism=gaussian", "--set mechanism: PrivateFPL takes no such parameter"),
        ("--read format=xls", "--read format=xls: expected one of csv, tsv"),
        ("--read rate=fast", "--read rate=fast: expected a number"), ("--read follow", "--read follow: expected KEY"),
        ("--read shape=csv", "--read shape: there is no such key; use format, "),
    )),
    *((f"run rows.csv --columns all {more}", words) for more, words in (
        ("-k 0 --epsilon 1 --row-norm 1", "-k 0"), ("-k 1 --epsilon -1 --row-norm 1", "--epsilon -1"),
        ("-k 1 --epsilon 1 --row-norm 0", "--row-norm 0"), ("-k 1 --epsilon 1 --bounds 1", "--bounds 1: '1' is not a"),
        ("-k 1 --epsilon 1 --bounds a=1:x", "--bounds a=1:x"), ("-k 1 --epsilon 1 --bounds 5:1", "5, 1"),
        ("-k 9 --epsilon 1 --row-norm 1 --store run.db --out r.jsonl", "-k 9 exceeds n_features=2."),
    )),
    (f"run rows.csv {BUDGET} --columns a,zz", "rows.csv: no column 'zz'"),
    (f"run rows.parquet {BUDGET}", "rows.parquet: needs pyarrow; install it with"),
    (f"run kafka://broker/topic {BUDGET}", "--columns"),
    (f"run kafka://broker/topic {BUDGET} --columns a --read delimiter=;", "--read delimiter does not apply"),
    (f"run kafka://broker/topic {BUDGET} --columns a --read cursor=id", "--read cursor does not apply"),
    (f"run postgresql://u:secret@host/db {BUDGET}", "cursor: --read query='SELECT * FROM t' --read cursor=id."),
    (f"pca postgresql://u:secret@host/db {KNOWN}", "postgresql://host/db: expected the path of a file."),
    (f"run rows.csv {BUDGET} --read query=SELECT", "--read query does not apply to rows.csv, a file"),
    # Mechanisms.
    *((f"pca rows.csv {KNOWN} {more}", words) for more, words in (
        ("--out none/r.jsonl", "none/r.jsonl: there is no folder none."), ("--mechanism nope", "--mechanism nope"),
        ("--mechanism matrix-laplace --delta 1e-6", "--delta: MatrixLaplaceCovariance takes no such"),
        ("--mechanism gaussian --ledger x.db", "--ledger and --data-set"), ("--set colour=3", "colour"),
        ("--mechanism matrix-laplace --center", "those that can are AdaptiveCovariance, AdaptiveLaplaceCovariance,"),
    )),
    (f"{TUMBLING}=matrix-laplace --release-every 3 {BUDGET} --center", "MatrixLaplaceCovariance cannot center;"),
    (f"{TUMBLING}=gaussian --release-every 3 -k 1 --row-norm 1", "Missing: --epsilon (privacy budget, e.g. 1)."),
    (f"{TUMBLING}=gaussian -k 1 --epsilon 1", "Missing: --release-every (rows between releases) and --bounds"),
    # What `check` refuses beside the refusals of `sp.check`, and questions of the planner.
    *((f"check {more}", words) for more, words in (
        ("rows.csv --epsilon -1", "--epsilon -1"), ("rows.csv --limit 0", "--limit 0"), ("none.csv", "No such file"),
        ("rows.csv --bounds a=0:1,size=0:2", "no column 'size'"), ("rows.csv --columns size", "no column 'size'"),
        ("rows.csv --read follow=yes", "--read follow: it does not apply to check"),
        ("rows.csv --read encoding=pink", "encoding=pink"), ("sqlite:///x.db", "check reads a whole table"),
        ("kafka://user:secret@broker/topic", "kafka://broker/topic: check reads a whole table"),
        *((where, "the path of a regular file") for where in ("-", ".")),
    )),
    (f"{PLAN} -k 2 --spectrum 0.1,x", "--spectrum 0.1,x"), (f"{PLAN} -k 2 --spectrum pink", "spectrum='pink'"),
    (f"{PLAN} -k 11", "exceeds"),
    # Stores.
    *((f"{command} run.db", "run.db holds no run. Start one with `streampca run FILE ... --store PATH`.")
      for command in ("resume", "status", "export")),
    *((f"{command} .", ". is a directory") for command in ("status", "verify", "export", "backup . x", "resume . x")),
    ("ledger show none.db", "there is no ledger none.db"), ("serve .", "pip install 'streampca[serve]'"),
    *((words.replace("URL", url), f"`{url.partition(':')[0]}://…` is a web address, and streampca reads none. Download "
       "the file and give its path.") for url in ADDRESSES for words in (
        "run URL --row-norm 1", "pca URL -k 1", "check URL", "resume run.db URL", "resume URL", "transform r.jsonl URL",
        "transform URL rows.csv", "show URL", "report URL", "serve URL", "status URL", "verify URL", "export URL",
        "backup URL copy.db")),
]  # fmt: skip


@pytest.mark.parametrize(("words", "message"), MESSAGES)
def test_the_shell_refuses_in_one_line_and_leaves_nothing(
    words: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    before = tables(tmp_path)
    if "needs pyarrow" in message or "--serve" in words or words == "serve .":
        for name in ("streampca.views.server", "streampca.cli.page"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        for name in ("pyarrow", "uvicorn"):
            monkeypatch.setitem(sys.modules, name, None)
    elif words.startswith("serve"):
        pytest.importorskip("starlette", reason="needs the extra serve")
    assert sp.cli.main(words.split()) == 2
    out, err = capsys.readouterr()
    *warnings, last = err.splitlines()
    assert all(line.startswith("warning: ") for line in warnings)
    assert (out, last.startswith("streampca: "), message in last, "secret" in err) == ("", True, True, False), err
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def tables(folder: Path) -> dict[str, bytes]:
    """Write tables, the second with text in a column of numbers; return their bytes by name."""
    rows = {"rows.csv": "a,b\n1,2\n3,4\n5,6\n", "words.csv": "a,b\nx,2\n3,4\n5,6\n", "rows.tsv": "a\tb\n1\t2\n"}
    rows |= {"empty.csv": "", "head.csv": "a,b\n", "bare.csv": "1,2\n3,4\n", "open.csv": 'a,"b\n1,2\n'}
    for name, text in (rows | {"rows.jsonl": '{"a": 1}\n', "rows.parquet": "PAR1"}).items():
        (folder / name).write_text(text)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


#: Interfaces that read a path, of which only the last ones can pay.
READERS = {
    "open_rows": lambda path, _: sp.sources.open_rows(path),
    "format": lambda path, _: sp.sources.open_rows(path, bounds=(0, 1)),
    "pca": lambda path, account: sp.pca(path, 1, 1.0, row_norm=1.0, account=account),
    "private bounds": lambda path, account: sp.pca(path, 1, 1.0, bounds="private", account=account),
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_text_files_are_refused_from_their_header(reader: Callable[[Path, object], object], tmp_path: Path) -> None:
    before = tables(tmp_path)
    with sp.Ledger(tmp_path / "ledger.db") as ledger:
        ledger.set_budget("t", sp.Budget(1.0, 1e-6))
        for name in ("rows.csv", "words.csv", "rows.tsv", "rows.jsonl"):
            path = tmp_path / name
            with pytest.raises(UsageError) as caught:
                reader(path, ledger.account("t"))
            assert str(caught.value) == f"{path} {NO_TYPES}."
        assert not ledger.balance("t").entries
    assert {name: (tmp_path / name).read_bytes() for name in before} == before


def test_the_library_answers_in_one_line(tmp_path: Path) -> None:
    stream, ended = (sp.Stream(replace(_FPL, horizon=4), row_norm=1.0, seed=1) for _ in range(2))
    ended.push_many(ROWS)
    path = str(tmp_path / "run.db")
    for wrong, message in (
        (lambda: stream.push(ROWS), "row 1: one row is 1-D, but the shape is (4, 2). Use push_many for several rows."),
        (lambda: ended.push(ROWS[0]), "the noise was set for 4 rows, of which 0 are left. No further row is taken; use "
         "horizon=None for a stream of unknown length."),
        (lambda: sp.Stream.resume(sp.Store(path)),
         f"{path} holds no run. Start one with `Stream(..., store=Store(path))`."),
    ):  # fmt: skip
        with pytest.raises(StreamPCAError) as caught:
            wrong()
        assert str(caught.value) == message
