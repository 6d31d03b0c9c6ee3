import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import streampca as sp
from streampca.cli.files import CURATOR_ONLY

COMMON = ["-k", "2", "--epsilon", "1", "--delta", "1e-5"]


@pytest.fixture
def table(tmp_path):
    data = np.random.default_rng(1).normal(size=(300, 4)) * [3.0, 2.0, 1.0, 0.5]
    path = tmp_path / "rows.csv"
    np.savetxt(path, data, delimiter=",", header="a,b,c,d", comments="")
    return path


@pytest.fixture
def run(command):
    """Run ``streampca run`` on a table with these options; the releases go into its folder."""

    def run(table, *more, out="releases.jsonl", common=COMMON):
        if not {"--bounds", "--row-norm"} & set(more):
            more = (*more, "--row-norm", "1")
        if "--columns" not in more:
            more = (*more, "--columns", "all")
        return command("run", table, *common, "--out", table.parent / out, *more)

    return run


def lines_of(table, name="releases.jsonl"):
    return (table.parent / name).read_text().splitlines()


def releases_of(table, name="releases.jsonl"):
    return list(sp.read_releases(table.parent / name))


def header_of(table, name="releases.jsonl"):
    header = json.loads(lines_of(table, name)[0])
    assert (header["kind"], header["format"]) == ("header", 3)
    return header


def test_the_command_line_releases_what_the_library_does_and_nothing_secret(table, run):
    more = ["--release-every", "60", "--horizon", "300", "--row-norm", "5", "--seed", "123456789"]
    said = run(table, *more, "--regret", table.parent / "regret.csv", "--set", "regret.every=64")
    assert (said.status, "curator only" in said.err) == (0, True)
    algorithm = sp.PrivateFPL(n_components=2, epsilon=1.0, delta=1e-5, release_every=60, horizon=300, center=True)
    stream = sp.Stream(algorithm, row_norm=5.0, seed=123456789)
    expected = [s.release for s in stream.run(sp.sources.from_csv(table, columns="all")) if s.release is not None]
    releases = releases_of(table)
    assert [r.t for r in releases] == [60, 120, 180, 240, 300]
    for a, b in zip(releases, expected, strict=True):
        np.testing.assert_array_equal(a.gram, b.gram)
        np.testing.assert_array_equal(a.subspace.basis, b.subspace.basis)
        assert (a.guarantee, a.features, a.row_norm) == (b.guarantee, b.features, b.row_norm)
    header = header_of(table)
    assert header["features"] == ["a", "b", "c", "d"]
    assert (header["guarantee"]["epsilon"], header["guarantee"]["adjacency"]) == (1.0, "zero-out")
    assert header["parameters"]["row_norm"] == 5.0
    assert not any("zero-out" in line or '"a"' in line for line in lines_of(table)[1:])  # once, in the header
    text = "\n".join(lines_of(table))
    assert "123456789" not in text
    assert "seeded: not private" in text
    for word in ('"reward"', '"regret"', '"captured"', '"bad_rows"', '"opt"', '"key"', '"seed"'):
        assert word not in text
    mark, columns, *lines = lines_of(table, "regret.csv")
    assert (mark, columns) == (CURATOR_ONLY, "t,reward,opt,regret,bound,captured,slack")
    assert [int(line.split(",")[0]) for line in lines] == [64, 128, 192, 256, 300]


def test_standard_output_holds_releases_and_nothing_else(table, command):
    more = ["--release-every", "1", "--set", "out.gram=no", "--set", "out.keep_every=10"]
    said = command("run", table, *COMMON, "--row-norm=1", "--columns=all", *more, "--out", "-")
    (table.parent / "out.jsonl").write_text(said.out)
    releases = releases_of(table, "out.jsonl")
    assert [r.t for r in releases] == list(range(10, 301, 10))
    assert (releases[-1].packed is not None, releases[-1].subspace.basis.shape) == (False, (4, 2))


def test_columns_and_bounds_and_bad_rows(tmp_path, run, terminal):
    path, bounds = tmp_path / "holes.csv", tmp_path / "bounds.json"
    path.write_text("x,name,y\n1,ann,2\n,bob,3\n4,eve,-9\n")
    bounds.write_text('{"x": [0, 5], "y": [-10, 10]}')
    said = run(path, "--columns", "x,y", "--bounds", str(bounds), "--release-every", "1")
    assert said.status == 0
    assert "unusable 1 rows (missing value)" in said.words
    header = header_of(path)
    assert header["features"] == ["x", "y"]
    assert header["parameters"]["bounds"] == [[0.0, -10.0], [5.0, 10.0]]
    assert len(lines_of(path)) == 4


def test_damage_keeps_what_was_released_before_it(tmp_path, run):
    path = tmp_path / "late.csv"
    path.write_text("a,b\n" + "1,2\n" * 25 + '1,"open\n')
    said = run(path, "--release-every", "10", "--horizon", "100")
    assert said.status == 3
    assert "begins in line 27" in said.err
    kept = f"ε = 1 is spent; 20 rows are in {path.with_name('releases.jsonl')}."
    assert f"Stopped after 25 rows by the problem below: {kept}" in said.err
    assert [r.t for r in releases_of(path)] == [10, 20]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_is_a_later_failure(table, command):
    for name in ("run", "pca"):
        said = command(name, table, *COMMON, "--row-norm=1", "--columns=all", "--out", "/dev/full", "--force")
        assert said.status == 3
        assert "rows by the problem below: ε = 1 is spent; no file was written." in said.err
        assert said.err.splitlines()[-1].startswith("streampca: ")
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); "
        "from streampca.cli import main; sys.exit(main())"
    )
    words = ["run", table, *COMMON, "--row-norm=1", "--columns=all"]
    done = subprocess.run([sys.executable, "-c", code, *words], cwd=table.parent, capture_output=True, check=False)
    assert (done.returncode, [path.name for path in table.parent.iterdir()]) == (3, ["rows.csv"]), done.stderr


def test_a_run_that_fails_before_its_first_release_leaves_no_file(tmp_path, run):
    path, regret = tmp_path / "early.csv", tmp_path / "regret.csv"
    path.write_text("a,b\n" + "1,2\n" * 25 + '1,"open\n')
    more = ("--release-every", "30", "--horizon", "100", "--regret", regret, "--set", "regret.every=5")
    more = (*more, "--summary", tmp_path / "s.md")
    said = run(path, *more)
    assert said.status == 3
    assert "Stopped after 25 rows by the problem below: ε = 1 is spent; no file was written." in said.err
    assert [file.name for file in tmp_path.iterdir()] == ["early.csv"]
    path.write_text("a,b\n" + "1,2\n" * 45)
    assert run(path, *more).status == 0
    assert [int(line.split(",")[0]) for line in lines_of(path, "regret.csv")[2:]] == list(range(5, 50, 5))
    assert regret.stat().st_mode & 0o777 == 0o600


def test_the_summary_is_the_card_and_the_curators(table, run, terminal):
    summary = table.parent / "summary.md"
    said = run(table, "--release-every", "100", "--summary", summary)
    assert said.status == 0
    text = summary.read_text()
    assert "do not publish" in text.splitlines()[2]
    for label in (
        "components stand out", "captured, exactly",
        "shortened", "releases",
    ):  # fmt: skip
        assert label in text, label
        assert label in said.words, label
    assert summary.stat().st_mode & 0o777 == 0o600
    assert not any("aptured" in line for line in lines_of(table))


def test_files_are_not_overwritten_unasked(table, run):
    assert run(table).status == 0
    before, said = lines_of(table), run(table)
    assert (said.status, "--force" in said.err, lines_of(table)) == (2, True, before)
    assert run(table, "--columns", "zz", "--force").status == 2
    assert lines_of(table) == before, "a run that fails before its first row must not destroy anything"
    assert run(table, "--force").status == 0
    assert lines_of(table) != before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_cleanly_with_complete_files(tmp_path, number):
    path, out, store = tmp_path / "long.csv", tmp_path / "r.jsonl", tmp_path / "run.db"
    block = np.random.default_rng(0).normal(size=(500, 6)).round(4).tolist()
    path.write_text("a,b,c,d,e,f\n" + 100 * "".join(",".join(map(str, row)) + "\n" for row in block))
    command = [sys.executable, "-c", "import sys; from streampca.cli import main; sys.exit(main())", "run", str(path)]
    files = ["--out", str(out), "--regret", str(tmp_path / "r.csv")]
    options = [*COMMON, "--row-norm", "1", "--columns", "all", "--release-every", "1", *files]
    options += ["--store", str(store)] if number == signal.SIGTERM else []
    process = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 60.0
    while not (out.exists() and out.stat().st_size > 2000):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
    os.kill(process.pid, number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "Traceback" not in err
    rows = int(re.search(r"Interrupted after (\d+) rows", err).group(1))
    text = out.read_text()
    assert text.endswith("\n")
    assert [json.loads(line)["t"] for line in text.splitlines()[1:]] == list(range(1, rows + 1))
    assert 0 < rows < 50_000
    assert (tmp_path / "r.csv").read_text().splitlines()[-1].startswith(f"{rows},")
    if store.exists():  # the commit was finished, too
        with sp.Store(store) as kept:
            assert sp.Stream.resume(kept).t == rows
            assert [release.t for release in kept.releases()] == list(range(1, rows + 1))


def test_publishable_regret_has_a_file_of_its_own(table, run):
    private, exact = table.parent / "private.jsonl", table.parent / "regret.csv"
    files = ["--private-regret", private, "--regret", exact, "--set", "regret.every=100", "--no-center"]
    said = run(table, *files, "--release-every", "50", "--horizon", "300", "--row-norm", "5")
    assert said.status == 0
    for words in (f"publishable:  {private}", "publishable:  regret per row in [", f"curator only: {exact}"):
        assert words in said.err
    records = [sp.PrivateRegretRecord.from_json(line) for line in private.read_text().splitlines()]
    assert [record.t for record in records] == [100, 200, 300]
    assert records[-1].guarantee.epsilon == 1.0
    assert "rewards" in records[-1].guarantee.scope
    plain = sp.PrivateFPL(n_components=2, epsilon=1.0, delta=1e-5, horizon=300, release_every=50, center=False)
    assert releases_of(table)[-1].noise_std == pytest.approx(25.0 * plain.noise_std(300) * 1.25**0.5)
    said = run(table, "--private-regret", exact, "--regret", exact)
    assert (said.status, "--regret and --private-regret are both" in said.err) == (2, True)
    said = run(table, "--private-regret", "x.jsonl", "--algorithm", "private-oja", out="other.jsonl")
    assert (said.status, "takes no such parameter" in said.err) == (2, True)


def test_warnings_follow_from_public_settings(table, run, monkeypatch):
    common = ["-k", "4", "--epsilon", "11", "--delta=.01"]
    said = run(table, "--horizon", "300", "--release-every", "300", common=common)
    for text in ("--epsilon 11: the guarantee is weak", "--delta 0.01 is too large for 300", "-k 4 is"):
        assert said.err.count(f"warning: {text}") == 1
    said = run(table, "--bounds", "-900:900", "--horizon", "300", "--seed", "1", out="b.jsonl")
    assert "No direction stands out" in said.err
    private = ("--bounds", "private", "--set", "bounds.warmup=500")
    for more in ((), ("--algorithm", "window", "--window", "100")):
        said = run(table, *private, *more, out="c.jsonl")
        refused = f"--bounds private would use 500 rows to find the ranges, but {table.name} has 300. Give public"
        assert (said.status, refused in said.err) == (2, True)
    said = run(table, *private, "--horizon", "300", out="c.jsonl")
    assert (said.status, "--set bounds.warmup=500: expected fewer rows than --horizon 300" in said.err) == (2, True)
    assert not (table.parent / "c.jsonl").exists()
    monkeypatch.setattr("streampca.rows.advice._LARGE_MEMORY", 100.0)
    said = run(table, out="d.jsonl")
    assert re.search("^warning: 4 features: .*Choose fewer columns.$", said.err, re.M)


def test_the_size_of_a_cell_is_not_in_a_log(tmp_path, run):
    """Off a terminal: the number of rows of a file was estimated from its bytes, 191000 in place of 120000."""
    logs = []
    for at, note in enumerate(("x", "x" * 10**6)):
        rows = tmp_path / "rows.csv"
        rows.write_text("a,b,c,note\n" + "0.1,0.2,0.3,x\n" * 90_000 + f"0.1,0.2,0.3,{note}\n")
        words = ["--columns", "a,b,c", "--release-every", "60000", "--seed", "1"]
        words += ["--set", "out.gram=no", "--set", "epsilon=1"]
        said = run(rows, *words, common=["-k", "1", "--delta", "1e-3"], out=f"{at}.jsonl")
        assert said.status == 0
        logs.append([line for line in said.err.splitlines() if "too large" in line or " of " in line])
    assert [line for line in logs[0] if "too large" in line] == [line for line in logs[1] if "too large" in line] != []
    assert not any("%) rows" in line for line in (*logs[0], *logs[1]))
