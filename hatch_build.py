"""Build hook: compile `streampca._native.kernels` into wheels and editable installs.

``STREAMPCA_NATIVE=0`` omits the extension, and ``1`` makes a failure an error. ``auto``, the default, builds a pure
wheel where there is no C compiler.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# No FMA and no -ffast-math: the kernels have the bits of numpy. No -march: a wheel runs on every machine.
_FLAGS = ["-O3", "-g0", "-std=gnu11", "-ffp-contract=off", "-fno-math-errno", "-fvisibility=hidden", "-Wno-psabi"]


class NativeBuildHook(BuildHookInterface):
    """Compile the extension before files are collected."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and mark the wheel as one for this platform; keep it pure where that fails."""
        wanted = os.environ.get("STREAMPCA_NATIVE", "auto")
        target = Path(self.root, "streampca", "_native", "kernels.abi3.so")
        if wanted == "0" or sys.platform == "win32":
            target.unlink(missing_ok=True)  # never that of an earlier build
            return
        try:
            self._compile(target)
        except Exception as problem:
            target.unlink(missing_ok=True)
            if wanted == "1":
                raise
            self.app.display_warning(f"streampca: the kernels are not compiled, numpy replaces them ({problem})")
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data |= {"pure_python": False, "tag": f"cp311-abi3-{platform}"}
        build_data["artifacts"].append("/streampca/_native/kernels.abi3.so")

    def _compile(self, target: Path) -> None:
        if sysconfig.get_config_var("Py_GIL_DISABLED") or sys.implementation.name != "cpython":
            raise RuntimeError(f"{sys.implementation.name} of this build has no stable ABI")
        from setuptools import Distribution, Extension
        from setuptools.command.build_ext import build_ext

        extension = Extension(
            "kernels", ["streampca/_native/module.c"], libraries=["m"],
            extra_compile_args=_FLAGS, extra_link_args=["-Wl,-s"] if sys.platform == "linux" else [],
            py_limited_api=True,
        )  # fmt: skip
        before = Path.cwd()
        os.chdir(self.root)  # relative names of sources: equal bytes in any folder
        try:
            with TemporaryDirectory() as scratch:
                command = build_ext(Distribution({"ext_modules": [extension]}))
                command.build_lib = command.build_temp = scratch
                command.ensure_finalized()
                command.run()
                (built,) = Path(scratch).glob("kernels*.so")
                fresh = target.with_suffix(".new")
                fresh.write_bytes(built.read_bytes())
                fresh.chmod(0o755)
                fresh.replace(target)  # at once: processes that start meanwhile find the one or the other
        finally:
            os.chdir(before)
