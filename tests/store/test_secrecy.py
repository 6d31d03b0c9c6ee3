"""What a store shows to somebody without its key: no row, no key, in no file, log or export."""

import base64
import logging
from pathlib import Path

import numpy as np
import pytest
from runs import begin, fpl

import streampca as sp
from streampca.cli import main
from streampca.errors import BadRowError
from streampca.linalg.lattice import STEP

#: Values that nothing else would contain: as text, as floats and as the integers that rows are kept as.
CANARIES = np.array([0.123456789, -0.314159265, 0.271828183])


def traces(values: np.ndarray) -> list[bytes]:
    lattice = np.trunc(values / STEP)
    found = []
    for value, kept in zip(values.tolist(), lattice.tolist(), strict=True):
        found += [repr(value)[:9].encode(), str(int(kept)).encode(), repr(kept * STEP)[:9].encode()]
        for number in (value, kept * STEP):
            found += [np.float64(number).tobytes(), np.float64(number).astype(">f8").tobytes()]
        found += [np.int32(kept).tobytes(), np.int64(kept).tobytes()]
    return found


@pytest.mark.parametrize("passphrase", [None, "correct horse"])
def test_canaries(tmp_path: Path, caplog: pytest.LogCaptureFixture, passphrase: str | None) -> None:
    caplog.set_level(logging.DEBUG)
    key, path = bytes(range(7, 39)), tmp_path / "run.db"
    store = sp.Store(path, commit_every=10, passphrase=passphrase)
    stream = sp.Stream(fpl(n_components=1, release_every=20), row_norm=1.0, features=3, key=key, store=store)
    rows = np.random.default_rng(0).normal(size=(205, 3)) / 9.0
    rows[7::20] = CANARIES
    rows[8] = np.nan
    for row in rows:
        stream.push(row)
    with pytest.raises(BadRowError) as problem:
        stream.push_many(np.array([[0.123456789, 0.314159265]]))
    # With the write-ahead log, as a crash finds it.
    files = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert set(files) >= {"run.db", "run.db-wal", "run.db.key", "run.db.witness"}
    store.close()
    files["closed"] = path.read_bytes()
    assert main(["export", str(path), "--out", str(tmp_path / "all.jsonl")]) == 0
    assert main(["backup", str(path), str(tmp_path / "copy.db")]) == 0
    for name in ("all.jsonl", "copy.db"):
        files[name] = (tmp_path / name).read_bytes()
    caplog.messages.append(str(problem.value))
    files["log"] = "\n".join(record.getMessage() for record in caplog.records).encode()
    assert b"committed" in files["log"]
    secret = [key, key.hex().encode(), base64.b64encode(key)]
    for name, data in files.items():
        for trace in traces(CANARIES) + (secret if name != "run.db.key" or passphrase else []):
            assert trace not in data, (name, trace)
    assert (secret[2] in files["run.db.key"]) == (passphrase is None)


def test_the_search_finds_rows_that_are_written_in_the_open(tmp_path: Path) -> None:
    row = np.trunc(CANARIES / STEP)
    for plain in (row.astype(np.int32).tobytes(), CANARIES.tobytes(), repr(CANARIES.tolist()).encode()):
        assert any(trace in b"x" + plain for trace in traces(CANARIES))


def test_rows_and_chain_values_are_gone_from_the_file_once_they_are_folded(tmp_path: Path) -> None:
    store, stream = begin(tmp_path / "run.db", 50)
    store.flush()
    (_, sealed), *_ = store._open_database().rows("log")
    secrets = stream.engine.processor.chain.link, stream.engine.start_id
    shown = repr(store) + repr(store._key) + str(vars(store)["_key"])
    assert stream.engine.randomness.key.hex() not in shown
    files = [file.read_bytes() for file in tmp_path.iterdir() if not file.name.endswith(".key")]
    store.close()  # takes a snapshot, and folds the write-ahead log in
    data = (tmp_path / "run.db").read_bytes()
    for secret in (*secrets, *(secret.hex().encode() for secret in secrets)):
        assert not any(secret in one for one in (data, *files))
    assert sealed[16:48] not in data
    assert not (tmp_path / "run.db-wal").exists()
