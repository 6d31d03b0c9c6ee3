import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from streampca import _native
from streampca.cli import main
from streampca.processors.private_fpl import PrivateFPL
from streampca.store.store import Store
from streampca.stream.stream import Stream

RUN = ["-k", "2", "--epsilon", "1", "--delta", "1e-5", "--bounds", "-5:5", "--no-live"]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "rows.csv"
    data = np.random.default_rng(1).normal(size=(3000, 3))
    np.savetxt(path, data, delimiter=",", header="a,b,c", comments="")
    return path


def head_of(table, count):
    part = table.with_name("part.csv")
    part.write_text("".join(table.read_text().splitlines(keepends=True)[: count + 1]))
    return part


def begin(table, *more):
    store = table.with_name("run.db")
    out = str(table.with_name("out.jsonl"))
    assert main(["run", str(table), *RUN, "--out", out, "--store", str(store), *more]) == 0
    return store


def test_resume_passes_over_what_is_durable_and_export_has_every_release(table, capsys):
    store = begin(head_of(table, 1234))
    assert main(["resume", str(store), str(table), "--no-live"]) == 0
    said = capsys.readouterr().err
    assert "Resumed after 1234 rows; next is row 1235." in said
    assert "Captured, exactly" not in said  # standard error is no terminal
    assert main(["export", str(store), "--out", str(table.with_name("all.jsonl"))]) == 0
    early = table.with_name("out.jsonl").read_text().splitlines()
    header, *releases = table.with_name("all.jsonl").read_text().splitlines()
    assert header == early[0]
    assert releases[: len(early) - 1] == early[1:]
    assert [json.loads(line)["t"] for line in releases] == list(range(100, 3001, 100))
    assert main(["verify", str(store), str(table)]) == 0
    assert "all 3000 rows" in capsys.readouterr().out
    assert main(["verify", str(store), str(head_of(table, 2999))]) == 2


def test_a_source_that_begins_with_the_next_row(table):
    lines = table.read_text().splitlines(keepends=True)
    rest = table.with_name("rest.csv")
    rest.write_text(lines[0] + "".join(lines[1001:]))
    store = begin(head_of(table, 1000))
    assert main(["resume", str(store), str(rest), "--continues", "--no-live"]) == 0
    assert main(["verify", str(store), str(table)]) == 0


def test_too_short_a_file_and_other_columns_are_refused(table, capsys):
    store = begin(table)
    assert main(["resume", str(store), str(head_of(table, 10)), "--no-live"]) == 2
    assert "--continues" in capsys.readouterr().err
    assert main(["resume", str(store), str(table), "--columns", "c,b,a", "--no-live"]) == 2


def test_another_file_than_that_of_the_run_is_refused(table, capsys):
    store = begin(head_of(table, 1000))
    header, *rows = table.read_text().splitlines(keepends=True)
    other = table.with_name("other.csv")
    for text in (
        header + "".join(rows[1:]),
        header + "".join(rows[:500][::-1] + rows[500:]),
        "b,a,c\n" + "".join(rows),
        header + "".join(rows[:999]) + rows[0] + "".join(rows[1000:]),
    ):
        other.write_text(text)
        assert main(["resume", str(store), str(other), "--no-live"]) == 2
        assert "not the rows that the run has taken" in capsys.readouterr().err
    assert main(["resume", str(store), str(table), "--continues", "--no-live"]) == 2
    assert "would count twice" in capsys.readouterr().err
    assert main(["resume", str(store), str(table), "--no-live"]) == 0


@pytest.mark.parametrize("upto", [100, 1000])
def test_a_run_with_private_bounds_is_resumed_in_and_after_its_warm_up(table, capsys, upto):
    store = table.with_name("run.db")
    options = ["-k", "1", "--epsilon", "1", "--delta", "1e-5", "--horizon", "3000", "--bounds", "private"]
    run = ["run", str(head_of(table, upto)), *options, "--set", "bounds.warmup=200", "--store", str(store), "--no-live"]
    assert main([*run, "--out", str(table.with_name("o.jsonl"))]) == 0
    assert main(["resume", str(store), str(table), "--no-live"]) == 0
    assert "3000 in all" in capsys.readouterr().err
    assert main(["verify", str(store), str(table)]) == 0


def test_commits_that_are_gone_are_noticed(table, capsys):
    store = begin(head_of(table, 1000))
    early = store.read_bytes()
    assert main(["resume", str(store), str(table), "--no-live"]) == 0
    assert main(["verify", str(store)]) == 0
    shown = capsys.readouterr().out
    assert "remembers row 3000: no commit is missing" in shown
    assert f"bases by {_native.described()} from row 1\n" in shown
    store.write_bytes(early)
    for command in ("verify", "status", "export"):
        assert main([command, str(store), *(["--out", "-"] if command == "export" else [])]) != 0
        assert "is at row 1000, but the witness" in capsys.readouterr().err
    store.with_name("run.db.witness").unlink()
    assert main(["verify", str(store)]) == 0
    assert "could not be seen" in capsys.readouterr().out


def test_status_needs_no_key(table, capsys):
    store = begin(table)
    os.unlink(f"{store}.key")
    capsys.readouterr()
    assert main(["status", str(store)]) == 0
    shown = capsys.readouterr().out
    assert "3001" in shown
    assert "running:           False" in shown
    assert f"kernels:           {_native.described()} from row 1\n" in shown
    assert main(["resume", str(store), str(table)]) == 2
    assert ".key is missing" in capsys.readouterr().err


def test_a_copy_is_refused_until_it_is_said_to_be_the_only_one(table, capsys):
    store, copy = begin(table), table.with_name("copy.db")
    assert main(["backup", str(store), str(copy)]) == 0
    assert main(["backup", str(store), str(copy)]) == 2
    os.link(f"{store}.key", f"{copy}.key")
    assert main(["resume", str(copy), str(table), "--no-live"]) == 2
    told = capsys.readouterr().err
    assert "--moved" in told
    assert "sqrt(2) times mu" in told
    assert main(["resume", str(copy), str(table), "--no-live", "--moved"]) == 0
    assert main(["verify", str(copy), str(table)]) == 0


def test_a_run_that_was_begun_is_not_begun_again(table, capsys):
    store = begin(table)
    assert main(["run", str(table), *RUN, "--out", str(table.with_name("b.jsonl")), "--store", str(store)]) == 2
    assert "resume" in capsys.readouterr().err
    assert main(["status", str(table.with_name("no.db"))]) == 2


def test_passphrase(table, capsys):
    secret = table.with_name("secret")
    secret.write_text("correct horse\n")
    store = begin(table, "--set", f"store.passphrase_file={secret}")
    assert main(["verify", str(store)]) == 2
    assert main(["verify", str(store), "--set", f"store.passphrase_file={secret}"]) == 0
    secret.write_text("wrong\n")
    capsys.readouterr()
    assert main(["verify", str(store), "--set", f"store.passphrase_file={secret}"]) == 2
    assert "does not open" in capsys.readouterr().err


def test_sigterm_finishes_the_commit(table):
    out = table.with_name("out.jsonl")
    big = table.with_name("big.csv")
    lines = table.read_text().splitlines(keepends=True)
    big.write_text(lines[0] + "".join(lines[1:]) * 400)
    store = table.with_name("run.db")
    script = "import sys; from streampca.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", script, "run", str(big), *RUN, "--out", str(out), "--store", str(store)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as running:
        while running.poll() is None and not (out.exists() and out.stat().st_size > 5000):
            time.sleep(0.01)
        running.send_signal(signal.SIGTERM)
        assert running.wait() == 128 + signal.SIGTERM
    with Store(store) as kept:
        taken = Stream.resume(kept).t
        releases = [release.t for release in kept.releases()]
    assert 0 < taken < 1_200_000
    assert releases == list(range(100, taken + 1, 100))
    written = [json.loads(line)["t"] for line in out.read_text().splitlines()[1:]]
    assert written == releases  # and the file of the run has every one of them


def test_status_export_and_backup_while_the_run_goes_on(table, tmp_path, capsys):
    rows = np.random.default_rng(5).normal(size=(900, 3)) / 3.0
    path = tmp_path / "going.db"
    with Store(path, commit_every=10) as store:
        stream = Stream(PrivateFPL(n_components=1, epsilon=1.0, delta=1e-6, release_every=100), store=store)
        stream.push_many(rows[:500])
        assert main(["status", str(path)]) == 0
        assert "running:           True" in capsys.readouterr().out
        assert main(["export", str(path), "--out", str(tmp_path / "early.jsonl")]) == 0
        assert main(["backup", str(path), str(tmp_path / "copy.db")]) == 0
        assert main(["verify", str(path)]) == 0
        assert main(["resume", str(path), str(table)]) == 2  # one writer
        assert len(stream.push_many(rows[500:]).releases) == 4
    assert len((tmp_path / "early.jsonl").read_text().splitlines()) == 6
    os.link(f"{path}.key", tmp_path / "copy.db.key")
    with Store(tmp_path / "copy.db") as copy:
        again = Stream.resume(copy, moved=True)  # another run: noise of its own on the same rows
        remade = [release.packed for release in again.push_many(rows[500:]).releases]
    with Store(path) as store:
        Stream.resume(store)
        made = [release.packed for release in store.releases()][5:]
    assert len(made) == len(remade) == 4
    assert all(np.abs(one - other).min() > 0.0 for one, other in zip(made, remade, strict=True))


def test_a_disk_that_cannot_be_written_to_can_be_read(table, monkeypatch):
    store = begin(table)
    for ending in ("-wal", "-shm"):
        table.with_name(f"run.db{ending}").unlink(missing_ok=True)
    monkeypatch.setattr(os, "access", lambda *_: False)
    before = sorted(os.listdir(table.parent))
    assert main(["status", str(store)]) == 0
    assert main(["export", str(store), "--out", "-"]) == 0
    assert sorted(os.listdir(table.parent)) == before


def test_a_witness_elsewhere_and_commits_by_rows(table, capsys):
    apart = table.with_name("apart")
    arguments = ["run", str(head_of(table, 1234)), *RUN, "--out", str(table.with_name("out.jsonl"))]
    store = table.with_name("run.db")
    options = ["--set", f"store.witness={apart / 'w'}", "--set", "store.commit_every=500"]
    assert main([*arguments, "--store", str(store), *options]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert not store.exists()
    apart.mkdir()
    assert main([*arguments, "--store", str(store), *options]) == 0
    assert (apart / "w").exists()
    assert not store.with_name("run.db.witness").exists()
    assert main(["resume", str(store), str(table), "--no-live"]) == 2
    assert "store.witness=" in capsys.readouterr().err
    assert main(["resume", str(store), str(table), "--no-live", *options]) == 0
    assert main([*arguments[:-1], "x.jsonl", "--set", "store.commit_every=500"]) == 2
    assert "goes with --store" in capsys.readouterr().err


def test_a_run_is_paid_from_the_account_of_its_data_set(table, capsys):
    ledger = str(table.with_name("ledger.db"))
    assert main(["ledger", "budget", ledger, "pay", "--epsilon", "1.2", "--delta", "1e-5"]) == 0

    def run(out, *more):
        return main(["run", str(table), *RUN, "--out", str(table.with_name(out)), *more])

    assert run("a.jsonl", "--ledger", ledger, "--data-set", "pay") == 0
    assert run("b.jsonl", "--ledger", ledger, "--data-set", "pay") == 2
    assert "has spent epsilon=1 of 1.2" in capsys.readouterr().err
    assert not table.with_name("b.jsonl").exists()
    assert main(["ledger", "show", ledger]) == 0
    shown = capsys.readouterr().out
    assert "epsilon 1 of 1.2 spent" in shown
    durable = ["--ledger", ledger, "--data-set", "kept", "--store", str(table.with_name("run.db"))]
    assert main(["ledger", "budget", ledger, "kept", "--epsilon", "1", "--delta", "1e-5"]) == 0
    assert run("k.jsonl", *durable) == 0
    assert main(["resume", str(table.with_name("run.db")), str(table), "--no-live"]) == 0
    assert main(["ledger", "show", ledger, "kept"]) == 0
    assert capsys.readouterr().out.count("mu = ") == 1
    shutil.copy(table.with_name("run.db"), table.with_name("copy.db"))
    os.link(table.with_name("run.db.key"), table.with_name("copy.db.key"))
    longer = table.with_name("longer.csv")
    longer.write_text(table.read_text() + "".join(table.read_text().splitlines(keepends=True)[1:]))
    assert main(["resume", str(table.with_name("copy.db")), str(longer), "--no-live", "--moved"]) == 2
    assert "has spent epsilon=1 of 1" in capsys.readouterr().err
    assert run("c.jsonl", "--ledger", ledger) == 2
    assert "go together" in capsys.readouterr().err
    assert run("d.jsonl", "--ledger", str(table.with_name("none.db")), "--data-set", "pay") == 2
