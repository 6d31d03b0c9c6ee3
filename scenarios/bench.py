"""Speed beside other libraries: ``python scenarios/bench.py [SUITE ...]``, see ``--help``."""

import sys
import warnings
from pathlib import Path
from typing import Annotated, Literal, get_args

from benchmark.cases import SUITES
from benchmark.timing import machine
from cyclopts import App, Parameter
from cyclopts.validators import Number
from threadpoolctl import threadpool_limits

from streampca.errors import StreamPCAWarning

Suite = Literal["row", "block", "window", "csv", "scale"]
app = App(help_format="plaintext", result_action="return_value")


@app.default
def main(
    *suites: Suite,
    rounds: Annotated[int, Parameter(validator=Number(gte=1))] = 5,
    small: bool = False,
    full: bool = False,
    markdown: Path | None = None,
) -> int:
    """Measure speed beside other libraries.

    All are interleaved in one process; required figures are printed beside the
    measured ones. Times are CPU seconds of one thread (of csv, elapsed ones too).
    Read the ratios: the machine may be busy. Peers that are not installed are
    omitted (pip install scikit-learn).

    Parameters
    ----------
    suites
        row, block, window, csv, scale. Default: all of them, about five minutes.
    rounds
        Interleaved rounds; medians count.
    small
        Small sizes: to see that it works, in seconds. The figures mean little.
    full
        Full sizes for csv and scale: 10**6 rows, and 2000 features.
    markdown
        Write the same to this file.
    """
    written = "Written by `python scenarios/bench.py --markdown`. Times are CPU time; read the ratios."
    text, verdicts = ["# Benchmarks", "", written], []

    def add(*lines: str) -> None:
        print(*lines, sep="\n", flush=True)
        text.extend(lines)

    with threadpool_limits(1), warnings.catch_warnings(action="ignore", category=StreamPCAWarning):
        add("", *machine())
        for name in dict.fromkeys(suites or get_args(Suite)):
            for comparison in SUITES[name](small=small, full=full):
                result = comparison.run(rounds)
                add("", *result.lines())
                verdicts += [goal.verdict(value) for goal, value in result.goals]
    if markdown is not None:
        markdown.parent.mkdir(parents=True, exist_ok=True)
        markdown.write_text("\n".join(text) + "\n", encoding="utf-8")
    print("", ", ".join(f"{verdicts.count(word)} {word}" for word in ("met", "missed", "not measured")), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(app())
