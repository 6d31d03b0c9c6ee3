"""The machine and the libraries, for whoever reads the numbers later."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version

from threadpoolctl import threadpool_info


def describe() -> dict[str, str]:
    """System, processor, cores, load and versions."""
    blas = ", ".join(
        sorted({f"{i['internal_api']} {i['version']}" for i in threadpool_info() if i["user_api"] == "blas"})
    )
    names = ("streampca", "numpy", "scipy", "numba", "scikit-learn", "river", "pandas", "cryptography")
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": f"{os.cpu_count()} cores; one thread is used",
        "load": f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown",
        "python": f"Python {platform.python_version()}",
        "libraries": ", ".join(f"{name} {found}" for name in names if (found := _version(name))),
        "blas": blas,
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown processor"
