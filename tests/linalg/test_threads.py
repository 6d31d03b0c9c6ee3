"""BLAS in one thread, inside the calls of streams."""

import subprocess
import sys

import numpy as np
import pytest

import streampca as sp
from streampca.linalg import threads
from streampca.linalg.threads import OneThread

CODE = """
import numpy, scipy.linalg, threadpoolctl
threadpoolctl.threadpool_limits(2)
import streampca as sp
stream = sp.Stream(sp.PrivateFPL(n_components=1, epsilon=1.0, release_every=1), row_norm=1.0, seed=0)
stream.push([0.1, 0.2])
threads = lambda: {pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"}
print(stream.release.t, threads())
from streampca.linalg.threads import one_blas_thread
one_blas_thread()
print(threads())
"""


class Library:
    """A BLAS of four threads that keeps what it was set to."""

    def __init__(self) -> None:
        self.count, self.set = 4, []

    def get_num_threads(self) -> int:
        return self.count

    def set_num_threads(self, count: int) -> None:
        self.count = count
        self.set.append(count)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library()
    monkeypatch.setattr(threads, "_libraries", lambda: [made])
    return made


@pytest.mark.parametrize(("features", "inside"), [(63, 4), (64, 1), (512, 1), (513, 4)])
def test_small_matrices_get_one_thread_and_the_process_its_own_number_back(library, features, inside) -> None:
    with OneThread(features):
        assert library.count == inside
        with OneThread(features):
            assert library.count == inside
        assert library.count == inside
    assert library.count == 4


def test_the_number_comes_back_after_an_error(library) -> None:
    with pytest.raises(ZeroDivisionError), OneThread():
        raise ZeroDivisionError
    assert library.set == [1, 4]
    assert library.count == 4


@pytest.mark.parametrize("push", ["rows", "many", "block"])
def test_streams_of_few_features_run_in_one_thread(library, push) -> None:
    rows = np.random.default_rng(0).normal(size=(50, 5)) / 5
    algorithm = sp.PrivateFPL(n_components=2, epsilon=1.0, center=False, release_every=25)
    stream = sp.Stream(algorithm, row_norm=1.0, features=list("abcde"))
    if push == "rows":
        for row in rows:
            stream.push(row)
    elif push == "many":
        stream.push_many(rows)
    else:
        for block in stream.leaves().blocks([rows], 0):
            stream.push_block(block)
    assert stream.t == 50
    assert library.set[:1] == [1]
    assert library.count == 4


def test_the_threads_of_the_host_are_left_alone_unless_asked() -> None:
    command = [sys.executable, "-c", CODE]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "1 {2}\n{1}\n"
