"""The suite takes the path of a plain install; tests of the compiled kernels switch them on."""

from streampca.linalg import fast

fast.use(False)
