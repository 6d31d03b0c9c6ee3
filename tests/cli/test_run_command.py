import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from streampca import read_releases
from streampca.cli import main
from streampca.cli.files import CURATOR_ONLY

COMMON = ["-k", "2", "--epsilon", "1", "--delta", "1e-5"]


@pytest.fixture
def table(tmp_path):
    data = np.random.default_rng(1).normal(size=(300, 4)) * [3.0, 2.0, 1.0, 0.5]
    path = tmp_path / "rows.csv"
    np.savetxt(path, data, delimiter=",", header="a,b,c,d", comments="")
    return path


def run(table, *more, out="releases.jsonl", common=COMMON):
    if not {"--bounds", "--row-norm"} & set(more):
        more = (*more, "--row-norm", "1")
    return main(["run", str(table), *common, "--out", str(table.parent / out), *more])


def lines_of(table, name="releases.jsonl"):
    return (table.parent / name).read_text().splitlines()


def releases_of(table, name="releases.jsonl"):
    return list(read_releases(table.parent / name))


def header_of(table, name="releases.jsonl"):
    header = json.loads(lines_of(table, name)[0])
    assert (header["kind"], header["format"]) == ("header", 2)
    return header


def test_releases_round_trip_and_the_header_tells_the_guarantee(table, capsys):
    assert run(table, "--release-every", "50", "--horizon", "300", "--row-norm", "5") == 0
    header = header_of(table)
    assert header["features"] == ["a", "b", "c", "d"]
    assert header["guarantee"]["epsilon"] == 1.0
    assert header["guarantee"]["adjacency"] == "zero-out"
    assert header["parameters"]["row_norm"] == 5.0
    assert not any("zero-out" in line or '"a"' in line for line in lines_of(table)[1:])  # told once, in the header
    releases = releases_of(table)
    assert [r.t for r in releases] == [50, 100, 150, 200, 250, 300]
    assert releases[-1].gram.shape == (4, 4)
    assert releases[-1].features == ("a", "b", "c", "d")
    assert "curator only" in capsys.readouterr().err


def test_the_command_line_releases_what_the_library_does(table):
    import streampca as sp

    assert run(table, "--release-every", "60", "--seed", "7", "--row-norm", "5") == 0
    algorithm = sp.PrivateFPL(n_components=2, epsilon=1.0, delta=1e-5, release_every=60)
    stream = sp.Stream(algorithm, row_norm=5.0, seed=7, center=True)
    expected = [s.release for s in stream.run(sp.sources.from_csv(table)) if s.release is not None]
    written = releases_of(table)
    assert len(written) == 5
    for a, b in zip(written, expected, strict=True):
        np.testing.assert_array_equal(a.subspace.basis, b.subspace.basis)
        assert (a.guarantee, a.features, a.row_norm) == (b.guarantee, b.features, b.row_norm)


def test_nothing_secret_is_published(table):
    assert run(table, "--seed", "123456789", "--release-every", "100") == 0
    text = "\n".join(lines_of(table))
    assert "123456789" not in text
    assert "seeded: not private" in text
    for word in ('"reward"', '"regret"', '"captured"', '"bad_rows"', '"opt"', '"key"', '"seed"'):
        assert word not in text


def test_regret_is_marked_as_the_curators(table):
    assert run(table, "--regret", str(table.parent / "regret.csv"), "--set", "regret.every=64") == 0
    lines = lines_of(table, "regret.csv")
    assert lines[0] == CURATOR_ONLY
    assert lines[1] == "t,reward,opt,regret,bound,captured,slack"
    assert [int(line.split(",")[0]) for line in lines[2:]] == [64, 128, 192, 256, 300]


def test_no_gram_writes_subspaces_only(table):
    assert run(table, "--set", "out.gram=no", "--release-every", "150") == 0
    release = releases_of(table)[-1]
    assert not release.has_gram
    assert release.subspace.basis.shape == (4, 2)


def test_keep_every_thins(table):
    assert run(table, "--set", "out.keep_every=10", "--release-every", "1") == 0
    assert [r.t for r in releases_of(table)] == list(range(10, 301, 10))


def test_standard_output_holds_releases_and_nothing_else(table, capsys):
    assert main(["run", str(table), *COMMON, "--row-norm=1", "--release-every", "100", "--out", "-"]) == 0
    out = table.parent / "out.jsonl"
    out.write_text(capsys.readouterr().out)
    assert header_of(table, "out.jsonl")["features"] == ["a", "b", "c", "d"]
    assert [r.t for r in read_releases(out)] == [100, 200, 300]


def test_columns_and_bounds_and_bad_rows(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    path = tmp_path / "holes.csv"
    path.write_text("x,name,y\n1,ann,2\n,bob,3\n4,eve,-9\n")
    bounds = tmp_path / "bounds.json"
    bounds.write_text('{"x": [0, 5], "y": [-10, 10]}')
    more = ["--columns", "x,y", "--bounds", str(bounds), "--on-bad-row", "zero", "--release-every", "1"]
    assert run(path, *more) == 0
    header = header_of(path)
    assert header["features"] == ["x", "y"]
    assert header["parameters"]["bounds"] == [[0.0, -10.0], [5.0, 10.0]]
    assert len(lines_of(path)) == 4
    assert "1 of 3 rows could not be used" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--bounds", "1"], "--bounds 1"),
        (["--bounds", "a=1:x"], "--bounds a=1:x"),
        (["--bounds", "5:1"], "5, 1"),
        (["--columns", "a,zz"], "zz"),
        (["--algorithm", "nope"], "--algorithm nope"),
        (["--set", "window"], "--set window"),
        (["--set", "window=3"], "--window"),
        (["--set", "noise=tree"], "--horizon"),
        (["--horizon", "0"], "--horizon 0"),
        (["--set", "out.keep_every=0"], "keep_every=0"),
        (["--set", "regret.every=0"], "every=0"),
        (["--set", "regret.ever=1"], "use bounds.warmup"),
        (["--set", "out.gram=maybe"], "--set out.gram=maybe: expected yes or no"),
        (["--set", "serve.port=80"], "--set serve.port: it goes with --serve"),
        (["--read", "format=xls"], "--read format=xls: expected csv or tsv"),
        (["--read", "rate=fast"], "--read rate=fast: expected a number"),
        (["--read", "shape=csv"], "--read shape: there is no such key; use format, "),
        (["--read", "follow"], "--read follow: expected KEY=VALUE"),
        (["--row-norm", "0"], "--row-norm 0"),
        (["--frobnicate"], "--frobnicate"),
        (["--release-every", "x"], "x"),
    ],
)
def test_bad_input_costs_one_line_and_leaves_nothing(table, capsys, more, words):
    assert run(table, *more) == 2
    captured = capsys.readouterr()
    last = captured.err.splitlines()[-1]
    assert last.startswith("streampca: ")
    assert words in last
    assert "Traceback" not in captured.err
    assert captured.out == ""
    assert not (table.parent / "releases.jsonl").exists()


@pytest.mark.parametrize(
    ("common", "words"),
    [
        (["-k", "9", "--epsilon", "1", "--delta", "1e-5"], "-k 9"),
        (["-k", "0", "--epsilon", "1", "--delta", "1e-5"], "-k 0"),
        (["-k", "2", "--epsilon", "-1", "--delta", "1e-5"], "--epsilon -1"),
        (["-k", "2", "--epsilon", "1", "--delta", "1"], "--delta 1"),
        (["-k", "2", "--delta", "1e-5"], "--epsilon"),
        ([], "PrivateFPL needs -k, --epsilon, --delta"),
        (["-k", "2", "--epsilon", "1", "--delta", "1e-5", "--set", "foo=1"], "--set foo: PrivateFPL takes no such"),
    ],
)
def test_bad_parameters_cost_one_line(table, capsys, common, words):
    assert run(table, common=common) == 2
    assert words in capsys.readouterr().err.splitlines()[-1]
    assert not (table.parent / "releases.jsonl").exists()


@pytest.mark.parametrize("text", ["", "a,b\n", "a,b\n1,x\n", "a,b\n1,inf\n", "a,b\n1\n"])
def test_bad_files_cost_one_line_and_leave_nothing(tmp_path, capsys, text):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    assert run(path) == 2
    assert str(path) in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "releases.jsonl").exists()


def test_a_missing_file_costs_one_line(tmp_path, capsys):
    assert run(tmp_path / "none.csv") == 2
    assert "none.csv" in capsys.readouterr().err


def test_a_bad_line_keeps_what_was_released_before_it(tmp_path, capsys):
    path = tmp_path / "late.csv"
    path.write_text("a,b\n" + "1,2\n" * 25 + "1,oops\n" + "1,2\n" * 25)
    assert run(path, "--release-every", "10") == 2
    err = capsys.readouterr().err
    assert "line 27" in err
    assert "Stopped after 25 rows" in err
    assert [r.t for r in releases_of(path)] == [10, 20]


def test_a_run_that_fails_before_its_first_release_leaves_no_file(tmp_path, capsys):
    path = tmp_path / "early.csv"
    path.write_text("a,b\n" + "1,2\n" * 25 + "1,oops\n")
    regret = tmp_path / "regret.csv"
    more = (
        "--release-every",
        "30",
        "--regret",
        str(regret),
        "--set",
        "regret.every=5",
        "--summary",
        str(tmp_path / "s.md"),
    )
    assert run(path, *more) == 2
    assert "Stopped after 25 rows by the problem below; no file was written." in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["early.csv"]
    path.write_text("a,b\n" + "1,2\n" * 45)
    assert run(path, *more) == 0
    assert [int(line.split(",")[0]) for line in regret.read_text().splitlines()[2:]] == list(range(5, 50, 5))
    assert regret.stat().st_mode & 0o777 == 0o600


def test_the_summary_is_the_card_and_the_curators(table, capsys, monkeypatch):
    summary = table.parent / "summary.md"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert run(table, "--release-every", "100", "--summary", str(summary)) == 0
    text, err = summary.read_text(), " ".join(capsys.readouterr().err.split())
    assert "do not publish" in text.splitlines()[2]
    assert text.splitlines()[4].startswith("Centered")
    for label in (
        "Components above the noise", "Captured, as the release predicts", "Captured, exactly",
        "Rows scaled onto the ball", "Releases",
    ):  # fmt: skip
        assert label in text, label
        assert label in err, label
    assert summary.stat().st_mode & 0o777 == 0o600
    for line in lines_of(table):
        assert "aptured" not in line


def test_a_log_has_no_figures_of_the_rows(table, capsys):
    rows, said = table.read_text().splitlines(), []
    for middle in (rows[150], ",".join("0" for _ in rows[0].split(",")), "abc", "1e9,1e9,1e9,1e9"):
        table.write_text("\n".join([*rows[:150], middle, *rows[151:]]) + "\n")
        assert run(table, "--release-every", "100", "--on-bad-row", "zero", "--force", "--seed", "3") == 0
        err = capsys.readouterr().err
        for word in ("curator only]", "not a number", "exactly", "captured 0", "bad row", "could not be used"):
            assert word not in err, word
        assert "--summary" in err
        said.append(re.sub(r"\d+\.\d s", "", err))
    assert said[1] == said[2]  # the zero row, and what counts as one


def test_past_the_horizon_stops_with_complete_files(table, capsys):
    assert run(table, "--horizon", "120", "--release-every", "50") == 2
    assert "horizon of 120 rows" in capsys.readouterr().err
    assert [r.t for r in releases_of(table)] == [50, 100, 120]


def test_files_are_not_overwritten_unasked(table, capsys):
    assert run(table) == 0
    before = lines_of(table)
    assert run(table) == 2
    assert "--force" in capsys.readouterr().err
    assert lines_of(table) == before
    assert run(table, "--columns", "zz", "--force") == 2
    assert lines_of(table) == before, "a run that fails before its first row must not destroy anything"
    assert run(table, "--force") == 0
    assert lines_of(table) != before


@pytest.mark.parametrize(
    ("more", "name"),
    [
        (["--algorithm", "window", "--window", "100"], "SlidingWindowPCA"),
        (["--algorithm", "PrivateOja", "--set", "batch_size=50"], "PrivateOja"),
        (["--no-center"], "PrivateFPL"),
    ],
)
def test_other_processors_and_centering(table, capsys, more, name):
    assert run(table, *more) == 0
    parameters = header_of(table)["parameters"]
    assert parameters["processor"] == name
    centered = name == "SlidingWindowPCA"
    assert parameters["center"] == centered
    assert all("guarantee" not in json.loads(line) for line in lines_of(table)[1:])
    last = releases_of(table)[-1]
    assert last.subspace.basis.shape == (4, 2)
    assert last.features == ("a", "b", "c", "d")
    assert last.row_norm == 1.0
    assert last.is_centered == centered
    assert " releases, " in capsys.readouterr().err


def test_one_file_cannot_be_both_public_and_the_curators(table, capsys):
    assert run(table, "--regret", str(table.parent / "releases.jsonl")) == 2
    assert "--out and --regret" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_cleanly_with_complete_files(tmp_path, number):
    path = tmp_path / "long.csv"
    block = np.random.default_rng(0).normal(size=(50_000, 6))
    np.savetxt(path, block, fmt="%.4f", delimiter=",", header="a,b,c,d,e,f", comments="")
    command = [sys.executable, "-c", "import sys; from streampca.cli import main; sys.exit(main())", "run", str(path)]
    files = ["--out", str(tmp_path / "r.jsonl"), "--regret", str(tmp_path / "r.csv")]
    options = [*COMMON, "--row-norm", "1", "--release-every", "1", *files]
    process = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True)
    wait_for(lambda: (tmp_path / "r.jsonl").exists() and (tmp_path / "r.jsonl").stat().st_size > 2000)
    os.kill(process.pid, number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "Traceback" not in err
    rows = int(re.search(r"Interrupted after (\d+) rows", err).group(1))
    text = (tmp_path / "r.jsonl").read_text()
    assert text.endswith("\n")
    times = [json.loads(line)["t"] for line in text.splitlines()[1:]]
    assert times == list(range(1, rows + 1))
    assert 0 < rows < 50_000
    assert (tmp_path / "r.csv").read_text().splitlines()[-1].startswith(f"{rows},")


def wait_for(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def test_publishable_regret_has_a_file_of_its_own(table, capsys):
    from streampca import PrivateFPL
    from streampca.regret.private_regret import PrivateRegretRecord

    private, exact = table.parent / "private.jsonl", table.parent / "regret.csv"
    files = ["--private-regret", str(private), "--regret", str(exact), "--set", "regret.every=100", "--no-center"]
    assert run(table, *files, "--release-every", "50", "--horizon", "300", "--row-norm", "5") == 0
    records = [PrivateRegretRecord.from_json(line) for line in private.read_text().splitlines()]
    assert [record.t for record in records] == [100, 200, 300]
    assert records[-1].guarantee.epsilon == 1.0
    assert "rewards" in records[-1].guarantee.scope
    plain = PrivateFPL(n_components=2, epsilon=1.0, delta=1e-5, horizon=300, release_every=50)
    last = releases_of(table)[-1]
    assert last.noise_std == pytest.approx(25.0 * plain.noise_std(300) * 1.25**0.5)
    said = capsys.readouterr().err
    assert f"publishable:  {private}" in said
    assert "publishable:  regret per row in [" in said
    assert f"curator only: {exact}" in said
    assert run(table, "--private-regret", str(exact), "--regret", str(exact)) == 2
    assert run(table, "--private-regret", "x.jsonl", "--algorithm", "private-oja", out="other.jsonl") == 2
    assert "takes no such parameter" in capsys.readouterr().err


def test_a_window_is_scored_window_by_window(table, capsys):
    import streampca as sp

    regret = table.parent / "regret.csv"
    more = [
        "--algorithm",
        "window",
        "--window",
        "100",
        "--release-every",
        "10",
        "--regret",
        str(regret),
        "--set",
        "regret.every=150",
    ]
    assert run(table, *more, "--seed", "3", "--row-norm", "5") == 0
    assert "regret against the best subspace of each 100 rows" in capsys.readouterr().err
    algorithm = sp.SlidingWindowPCA(n_components=2, epsilon=1.0, delta=1e-5, window=100, release_every=10)
    stream = sp.Stream(algorithm, row_norm=5.0, seed=3, regret=sp.RegretLog(every=150, window=100), center=True)
    list(stream.run(sp.sources.from_csv(table)))
    last = [float(value) for value in regret.read_text().splitlines()[-1].split(",")]
    assert last[:4] == pytest.approx([getattr(stream.regret.now(), f) for f in ("t", "reward", "opt", "regret")])


def test_bounds_are_never_guessed(tmp_path, capsys):
    missing = tmp_path / "nothing.csv"
    assert main(["run", str(missing), *COMMON, "--out", str(tmp_path / "out.jsonl")]) == 2  # before it is looked for
    said = capsys.readouterr().err
    for way in ("--bounds lo:hi", "--bounds FILE", "--bounds private", "--row-norm"):
        assert way in said
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_bounds_with_gaps_is_refused(table, capsys):
    bounds = table.parent / "bounds.json"
    bounds.write_text('{"b": [null, null], "d": [null, null]}')
    assert run(table, "--columns", "b,d", "--bounds", str(bounds)) == 2
    assert "fill in the ranges of 'b', 'd'" in capsys.readouterr().err
    bounds.write_text(bounds.read_text().replace("null, null", "-9, 9"))
    assert run(table, "--columns", "b,d", "--bounds", str(bounds)) == 0
    assert header_of(table)["parameters"]["bounds"] == [[-9.0, -9.0], [9.0, 9.0]]


def test_what_is_public_is_warned_of(table, capsys):
    assert (
        run(table, "--horizon", "300", "--release-every", "300", common=["-k", "4", "--epsilon", "11", "--delta=.01"])
        == 0
    )
    said = capsys.readouterr().err
    for text in (
        "warning: --epsilon 11: the guarantee is weak",
        "warning: --delta 0.01 exceeds 1/300",
        "warning: -k 4 is",
    ):
        assert said.count(text) == 1
    assert run(table, "--bounds", "-900:900", "--horizon", "300", "--seed", "1", out="b.jsonl") == 0
    assert "warning: too few rows for this budget: in the release after 300 rows" in capsys.readouterr().err


def test_the_size_of_a_cell_is_not_in_a_log(tmp_path, capsys):
    """Off a terminal: the number of rows of a file was estimated from its bytes, 191000 in place of 120000."""
    said = []
    for at, note in enumerate(("x", "x" * 10**6)):
        rows = tmp_path / "rows.csv"
        rows.write_text("a,b,c,note\n" + "0.1,0.2,0.3,x\n" * 90_000 + f"0.1,0.2,0.3,{note}\n")
        words = ["--columns", "a,b,c", "--on-bad-row", "zero", "--release-every", "60000", "--seed", "1"]
        words += ["--set", "out.gram=no"]
        assert run(rows, *words, "--set", "epsilon=1", common=["-k", "1", "--delta", "1e-3"], out=f"{at}.jsonl") == 0
        said.append([line for line in capsys.readouterr().err.splitlines() if "exceeds" in line or " of " in line])
    assert [line for line in said[0] if "exceeds" in line] == [line for line in said[1] if "exceeds" in line] != []
    assert not any("%) rows" in line for line in (*said[0], *said[1]))


def test_a_delta_too_large_is_told_without_a_horizon_too(table, capsys):
    common = ["-k", "2", "--epsilon", "1", "--delta", "0.01"]
    assert run(table, common=common) == 0
    assert "warning: --delta 0.01 exceeds 1/300," in capsys.readouterr().err
    pipe = table.parent / "pipe.csv"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(table.read_bytes()))
    writer.start()
    assert run(pipe, common=common, out="piped.jsonl") == 0
    writer.join()
    assert capsys.readouterr().err.splitlines()[-1].startswith("warning: --delta 0.01 exceeds 1/300")


def test_large_matrices_are_told_with_options(table, capsys, monkeypatch):
    monkeypatch.setattr("streampca.rows.advice._LARGE_MEMORY", 100.0)
    assert run(table) == 0
    assert re.search("^warning: 4 features: .*Choose fewer columns.$", capsys.readouterr().err, re.M)


def test_a_warm_up_that_takes_all_rows_is_told(table, capsys):
    assert run(table, "--bounds", "private", "--set", "bounds.warmup=500") == 0
    assert "give more rows, a bounds.warmup smaller than 500, which is for private bounds" in capsys.readouterr().err
