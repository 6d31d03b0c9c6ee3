import subprocess
import sys

CODE = """
import numpy, scipy.linalg, threadpoolctl
threadpoolctl.threadpool_limits(2)
import streampca as sp
stream = sp.Stream(sp.PrivateFPL(n_components=1, epsilon=1.0, delta=1e-6), seed=0)
stream.push([0.1, 0.2])
print({pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"})
"""


def test_blas_has_one_thread_once_a_stream_has_started() -> None:
    assert subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True).stdout == "{1}\n"
