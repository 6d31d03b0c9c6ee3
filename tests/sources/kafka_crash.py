"""A durable run of a Kafka topic that is killed at random moments. Used by test_kafka.py.

    python tests/sources/kafka_crash.py SERVERS FOLDER KILLS

Children are forked from one process without threads; each resumes the run and says on a pipe how far it came.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path

import confluent_kafka  # noqa: F401  # imported once, for all children
import numpy as np

from streampca import _native
from streampca.errors import BadParameterError
from streampca.processors.private_fpl import PrivateFPL
from streampca.sources.kafka import from_kafka
from streampca.store.config import config_of, dump
from streampca.store.store import Store
from streampca.stream.stream import Stream

FEATURES = ["a", "b", "c"]


def topic(servers: str, **options):
    return from_kafka("rows", "crash", servers=servers, features=FEATURES, on_bad_row="zero", turn=100, **options)


def stream(store: Store | None) -> Stream:
    algorithm = PrivateFPL(n_components=1, epsilon=1.0, delta=1e-6, release_every=50)
    return Stream(algorithm, features=FEATURES, row_norm=3.0, on_bad_row="zero", seed=1, store=store)


def live(servers: str, folder: Path, pipe: int) -> None:
    store = Store(folder / "run.db", commit_every=40, snapshot_every="20ms")
    try:
        run = Stream.resume(store)
    except BadParameterError:
        run = stream(store)
    for step in run.run(topic(servers)):
        if step.t % 40 == 0:
            os.write(pipe, b".")
    store.close()


def main(servers: str, folder: Path, kills: int) -> None:
    _native.use(False)
    stream(None).push_many(np.ones((60, 3)))  # imports, once for all children
    dump(config_of(stream(None).engine))
    draw = random.Random(7)
    for kill in range(kills + 1):
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read)
            code = 1
            try:
                live(servers, folder, write)
                code = 0
            finally:
                os._exit(code)
        os.close(write)
        left = draw.randrange(8) if kill < kills else None
        while (left is None or left > 0) and (seen := os.read(read, 1 if left else 4096)):
            left = None if left is None else left - len(seen)
        if left is not None:
            os.kill(pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.close(read)
        if status != (0 if left is None else -9):
            sys.exit(f"child {kill}: status {status}")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
