"""The machine, and results as text, JSON and Markdown."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_info

from benchmark.timing import Result

_WORD = {True: "met", False: "missed", None: "not measured"}


def describe() -> dict[str, str]:
    """System, processor, cores, load and versions, as text."""
    blas = ", ".join(
        sorted({f"{i['internal_api']} {i['version']}" for i in threadpool_info() if i["user_api"] == "blas"})
    )
    names = ("streampca", "numpy", "scipy", "scikit-learn", "river", "pandas", "cryptography")
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


def show(console: Console, result: Result, *, explain: bool) -> None:
    """Print one result: its table, its facts and its bars."""
    console.print()
    console.print(f"{result.suite}: {result.title}", highlight=False, style="bold")
    if result.timed:
        console.print(_table(result))
    for fact in result.facts:
        console.print(fact, highlight=False)
    for bar in result.bars:
        value = "" if bar.value is None else f"{bar.value:.2f} "
        text = f"  {_WORD[bar.met]:>6}: {value}(asked for: {bar.sense} {bar.bound:g})  {bar.what}"
        console.print(text, highlight=False, soft_wrap=True)
        if bar.note and (explain or bar.value is None):
            console.print(f"        {bar.note}", highlight=False, soft_wrap=True)


def _table(result: Result) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for name in ("us/row", "rows/s", "range", "ratio"):
        table.add_column(name, justify="right")
    base = result.timed[0]
    for timed in result.timed:
        table.add_row(
            timed.name, f"{timed.per_row:.3g}", f"{1e6 / timed.per_row:,.0f}".replace(",", " "),
            f"{100 * timed.relative_range:.0f} %", f"{timed.faster_than(base):.2f}x",
        )  # fmt: skip
    return table


def write_json(file: Path, machine: dict[str, str], results: Sequence[Result]) -> None:
    """Write the machine and all results as JSON."""
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"machine": machine, "results": [r.to_dict() for r in results]}, indent=1)
    file.write_text(text + "\n", encoding="utf-8")


def write_markdown(file: Path, machine: dict[str, str], results: Sequence[Result], profile: str) -> None:
    """Write the machine, all tables with what was asked for, and a profile, as Markdown."""
    out = [
        "# Benchmarks",
        "",
        "Written by `python scenarios/bench.py --markdown`. Times are CPU time; read the ratios.",
        "",
    ]
    out += [f"- {line}" for line in machine.values()]
    for result in results:
        out += ["", f"## {result.suite}: {result.title}", ""]
        if result.timed:
            out += ["| | us/row | rows/s | ratio |", "|---|---:|---:|---:|"]
        for one in result.timed:
            ratio = one.faster_than(result.timed[0])
            out.append(f"| {one.name} | {one.per_row:.3g} | {1e6 / one.per_row:.0f} | {ratio:.2f} |")
        out += ["", *(f"- {fact.strip()}" for fact in result.facts)]
        for bar in result.bars:
            value = "" if bar.value is None else f"{bar.value:.2f} "
            out.append(f"- {_WORD[bar.met]}: {value}(asked for: {bar.sense} {bar.bound:g}) {bar.what}")
    if profile:
        out += ["", "## A row by function: d = 20, tracking, every release read", "", "```text", profile.strip(), "```"]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(out) + "\n", encoding="utf-8")
