"""The page "Which algorithm?": answers of the planner to typical questions.

``python docs/_which_algorithm.py > docs/which.md`` writes the page; takes a few seconds.
"""

from __future__ import annotations

from typing import Any

from streampca.planning import plan
from streampca.planning.plan import Plan

#: Headings, and keywords for the planner.
SITUATIONS: list[tuple[str, dict[str, Any]]] = [
    ("A live subspace of everything so far", {"n_rows": 100_000, "n_features": 20, "n_components": 3}),
    ("The last 10 000 rows of an endless stream", {"n_rows": 100_000, "n_features": 20, "n_components": 3,
                                                   "window": 10_000}),
    ("One table, released once", {"n_rows": 5_000, "n_features": 20, "n_components": 3, "release_every": 5_000}),
    ("Wide rows, live", {"n_rows": 50_000, "n_features": 50, "n_components": 5}),
    ("Too few rows for so many features", {"n_rows": 1_000, "n_features": 50, "n_components": 5}),
]  # fmt: skip

_HEAD = """# Which algorithm?

Ask the planner; it reads no rows and spends no budget:

    streampca plan --n-rows 100000 -d 20 -k 3 --epsilon 1 --delta 1e-6

In short, for rows that come one after the other:

| what you want | take | in river | in scikit-learn |
|---|---|---|---|
| a subspace of all rows so far, again and again | `PrivateFPL` | `PrivatePCA` | `PrivatePCA`, `partial_fit` |
| the same, rows that keep to one distribution or change slowly, much noise | `PrivateFPL(solver="smoothed")` | | |
| a subspace of the last W rows, without end | `SlidingWindowPCA` | `PrivateWindowPCA` | |
| the same, slowly changing rows, at most 100 releases a window | `SlidingWindowPCA(method="smoothed")` | | |
| the same, rows of one distribution: the last full window | `Tumbling(mechanism, release_every=W)` | | |
| one subspace a day, or a block: rows before it do not matter | `Tumbling(mechanism, release_every=n)` | | |
| one release of one table | a mechanism, e.g. `GaussianCovariance` (streampca pca) | | `PrivatePCA`, `fit` |
| the same, or a block, of rows that are short or of uneven length | `adaptive_mechanism`, `Tumbling` of it | | |
| very many features, where a d x d matrix does not fit | `PrivateOja` | `PrivateOjaPCA` | |
| rows that lie close to a few directions, alike, in no particular order, from some 100 000 of them on | `DPPCA` | | |
| no delta at all | `MatrixLaplaceCovariance` (short rows: `AdaptiveLaplaceCovariance`) | | |
| nothing private: a baseline | `Oja` | | |

What the planner says to some questions, at epsilon = 1 and delta = 1e-6 for a "decaying" spectrum (eigenvalues
like 1/j) of rows of half the squared norm that is allowed. *Captured* is the share of the best subspace's
variance that the last release is expected to have; of adaptive mechanisms and `DPPCA` the planner cannot tell it
within a quarter from a spectrum alone. This page is written by
`python docs/_which_algorithm.py`, and a test compares it with the planner.
"""


def planned(question: dict[str, Any]) -> Plan:
    """Answer of the planner to a question of `SITUATIONS`."""
    return plan(epsilon=1.0, delta=1e-6, **question)


def section(title: str, question: dict[str, Any]) -> str:
    """One situation: the best candidates that serve it, the recommendation and its reason."""
    made = planned(question)
    asked = ", ".join(f"{key} = {value:,}".replace(",", " ") for key, value in question.items())
    lines = [f"## {title}", "", asked, "", "| candidate | captured | releases |", "|---|---|---|"]
    for p in [p for p in made.predictions if p.serves == made.best.serves][:7]:
        name = f"**{p.label}**" if p is made.best else p.label
        captured = f"{p.captured:.1%}" if p.is_certain else "cannot tell"
        lines.append(f"| {name} | {captured} | {p.releases} |")
    lines += ["", f"Take `{made.best.code}`: {made.reason}."]
    lines += [f"\nBut {text}." for text in made.advice if "Tumbling" in text]
    lines += [f"\nWarning: {text}." for text in made.warnings]
    return "\n".join(lines) + "\n"


def page() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *(section(title, question) for title, question in SITUATIONS)])


if __name__ == "__main__":
    print(page(), end="")
