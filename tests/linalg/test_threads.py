import subprocess
import sys

CODE = """
import numpy, scipy.linalg, threadpoolctl
threadpoolctl.threadpool_limits(2)
import streampca as sp
stream = sp.Stream(sp.PrivateFPL(n_components=1, epsilon=1.0, delta=1e-6), seed=0)
stream.push([0.1, 0.2])
threads = lambda: {pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"}
print(stream.release.t, threads())
from streampca.linalg.threads import one_blas_thread
one_blas_thread()
print(threads())
"""


def test_the_threads_of_the_host_are_left_alone_unless_asked() -> None:
    command = [sys.executable, "-c", CODE]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "1 {2}\n{1}\n"
