"""Durable runs on the command line."""

import json
import os
import shutil

import numpy as np
import pytest
from runs import ROWS, begin as begin_run, proceed, whole

from streampca.cli import main

RUN = ["-k", "2", "--epsilon", "1", "--delta", "1e-5", "--bounds", "-5:5", "--columns", "a,b,c", "--no-live"]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "rows.csv"
    data = np.random.default_rng(1).normal(size=(3000, 3))
    np.savetxt(path, data, delimiter=",", header="a,b,c", comments="")
    return path


@pytest.fixture
def fails(command):
    """Run a command that ends with code 2 and a message."""

    def fails(message, *words):
        said = command(*words)
        assert (said.status, message in said.err) == (2, True), said.err

    return fails


def part_of(table, text, name="part.csv"):
    part = table.with_name(name)
    part.write_text(text)
    return part


def head_of(table, count):
    return part_of(table, "".join(table.read_text().splitlines(keepends=True)[: count + 1]))


def begin(table, *more, out="out.jsonl"):
    store = table.with_name("run.db")
    assert main(["run", str(table), *RUN, "--out", str(table.with_name(out)), "--store", str(store), *more]) == 0
    return store


def resume(store, table, *more):
    return main(["resume", str(store), str(table), "--no-live", *more])


def test_resume_passes_over_what_is_durable_and_export_has_every_release(table, capsys):
    store = begin(head_of(table, 1234))
    assert resume(store, table) == 0
    said = capsys.readouterr().err
    assert "Resumed after 1234 rows; next is row 1235." in said
    assert "Captured, exactly" not in said  # standard error is no terminal
    assert main(["export", str(store), "--out", str(table.with_name("all.jsonl"))]) == 0
    early = table.with_name("out.jsonl").read_text().splitlines()
    header, *releases = table.with_name("all.jsonl").read_text().splitlines()
    assert header == early[0]
    assert releases[: len(early) - 1] == early[1:]
    assert [json.loads(line)["t"] for line in releases] == list(range(100, 3001, 100))
    assert main(["verify", str(store)]) == 0


def test_damage_behind_rows_of_a_store_is_a_later_failure(table, command):
    store, lines = begin(head_of(table, 1000)), table.read_text().splitlines(keepends=True)
    said = command("resume", store, part_of(table, "".join(lines[:1501]) + '1,"open\n'), "--no-live")
    assert said.status == 3
    assert f"Stopped after 1500 rows by the problem below: ε = 1 is spent; 1500 rows are in {store}." in said.err


def test_other_rows_than_those_of_the_run_are_refused(table, fails):
    store = begin(head_of(table, 1000))
    header, *rows = table.read_text().splitlines(keepends=True)
    fails("--continues", "resume", store, head_of(table, 10), "--no-live")
    fails("are not those of the run", "resume", store, table, "--columns", "c,b,a", "--no-live")
    for text in (
        header + "".join(rows[1:]),
        header + "".join(rows[:500][::-1] + rows[500:]),
        "b,a,c\n" + "".join(rows),
        header + "".join(rows[:999]) + rows[0] + "".join(rows[1000:]),
    ):
        other = part_of(table, text)
        fails("not the rows that the run has taken", "resume", store, other, "--no-live")
    fails("would count twice", "resume", store, table, "--continues", "--no-live")
    assert resume(store, part_of(table, header + "".join(rows[1000:2000])), "--continues") == 0
    assert resume(store, table) == 0
    assert main(["verify", str(store)]) == 0


def test_commits_that_are_gone_are_noticed(table, capsys, fails):
    store = begin(head_of(table, 1000))
    early = store.read_bytes()
    assert resume(store, table) == 0
    assert main(["verify", str(store)]) == 0
    assert "remembers row 3000: no commit is missing" in capsys.readouterr().out
    store.write_bytes(early)
    for command in (["verify"], ["status"], ["export", "--out", "-"]):
        fails("is at row 1000, but the witness", command[0], store, *command[1:])
    store.with_name("run.db.witness").unlink()
    assert main(["verify", str(store)]) == 0
    assert "could not be seen" in capsys.readouterr().out


def test_status_needs_no_key_and_a_begun_run_is_not_begun_again(table, capsys, fails):
    store = begin(table)
    fails("Continue with `streampca resume ", "run", table, *RUN, "--out", table.with_name("b.jsonl"), "--store", store)
    os.unlink(f"{store}.key")
    assert main(["status", str(store)]) == 0
    shown = capsys.readouterr().out
    assert all(part in shown for part in ("3001", "running:           False"))
    fails(".key is missing", "resume", store, table)
    fails("holds no run", "status", table.with_name("no.db"))


def test_a_copy_is_refused_until_it_is_said_to_be_the_only_one(table, fails):
    store, copy = begin(table), table.with_name("copy.db")
    assert main(["backup", str(store), str(copy)]) == 0
    fails("exists", "backup", store, copy)
    os.link(f"{store}.key", f"{copy}.key")
    fails(
        "(--moved): it draws noise of its own, both together cost sqrt(2) times mu", "resume", copy, table, "--no-live"
    )
    assert resume(copy, table, "--moved") == 0
    assert main(["verify", str(copy)]) == 0


def test_passphrase(table, fails):
    secret = table.with_name("secret")
    secret.write_text("correct horse\n")
    given = "--set", f"store.passphrase_file={secret}"
    store = begin(head_of(table, 100), *given)
    fails("is protected", "verify", store)
    assert main(["verify", str(store), *given]) == 0
    secret.write_text("wrong\n")
    fails("does not open", "verify", store, *given)


def test_status_export_and_backup_while_the_run_goes_on(table, tmp_path, capsys, fails):
    path = tmp_path / "going.db"
    store, stream = begin_run(path, 500, commit_every=10)
    assert main(["status", str(path)]) == 0
    assert "running:           True" in capsys.readouterr().out
    assert main(["export", str(path), "--out", str(tmp_path / "early.jsonl")]) == 0
    assert main(["backup", str(path), str(tmp_path / "copy.db")]) == 0
    assert main(["verify", str(path)]) == 0
    fails("is held", "resume", path, table)  # one writer
    stream.push_many(ROWS[500:600])
    store.close()
    assert len((tmp_path / "early.jsonl").read_text().splitlines()) == 51
    shutil.copy2(f"{path}.key", tmp_path / "copy.db.key")
    assert proceed(tmp_path / "copy.db", 500, moved=True) == whole()[:50]


def test_a_disk_that_cannot_be_written_to_can_be_read(table, monkeypatch):
    store = begin(table)
    for ending in ("-wal", "-shm"):
        table.with_name(f"run.db{ending}").unlink(missing_ok=True)
    monkeypatch.setattr(os, "access", lambda *_: False)
    before = sorted(os.listdir(table.parent))
    assert main(["status", str(store)]) == 0
    assert main(["export", str(store), "--out", "-"]) == 0
    assert sorted(os.listdir(table.parent)) == before


def test_a_witness_elsewhere_and_commits_by_rows(table, fails):
    apart, store, part = table.with_name("apart"), table.with_name("run.db"), head_of(table, 1234)
    options = ["--set", f"store.witness={apart / 'w'}", "--set", "store.commit_every=500"]
    out = ["--out", table.with_name("out.jsonl")]
    fails("there is no folder", "run", part, *RUN, *out, "--store", store, *options)
    assert not store.exists()
    apart.mkdir()
    begin(part, *options)
    assert (apart / "w").exists()
    assert not store.with_name("run.db.witness").exists()
    fails("store.witness=", "resume", store, table, "--no-live")
    assert resume(store, table, *options) == 0


def test_a_run_is_paid_from_the_account_of_its_data_set(table, capsys, fails):
    ledger = str(table.with_name("ledger.db"))
    account = ["--ledger", ledger, "--data-set"]

    def words(out, *more):
        return ["run", str(table), *RUN, "--out", str(table.with_name(out)), *more]

    for name, epsilon in (("pay", "1.2"), ("kept", "1")):
        assert main(["ledger", "budget", ledger, name, "--epsilon", epsilon, "--delta", "1e-5"]) == 0
    assert main(words("a.jsonl", *account, "pay")) == 0
    fails("has spent epsilon=1 of 1.2", *words("b.jsonl", *account, "pay"))
    assert not table.with_name("b.jsonl").exists()
    store = begin(table, *account, "kept", out="k.jsonl")
    assert resume(store, table) == 0
    capsys.readouterr()
    assert main(["ledger", "show", ledger, "kept"]) == 0
    assert capsys.readouterr().out.count("mu = ") == 1
    copy = table.with_name("copy.db")
    for end in ("", ".key"):
        shutil.copy2(f"{store}{end}", f"{copy}{end}")
    longer = part_of(table, table.read_text() + "".join(table.read_text().splitlines(keepends=True)[1:]))
    fails("has spent epsilon=1 of 1", "resume", copy, longer, "--no-live", "--moved")
    fails("has no budget", "ledger", "show", ledger, "nobody")
