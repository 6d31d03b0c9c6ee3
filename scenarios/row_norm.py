"""A public norm of 1.5 times the typical one, against that of the longest rows: what each loses.

``python scenarios/row_norm.py`` prints the tables of docs/utility, in some minutes; ``python scenarios/run.py
row_norm`` checks the figures. Loss is 1 - captured, of the variance of all rows about their mean, none of them clipped.
"""

import itertools
import math

import numpy as np
from real_tables import Found, cells, fed, markdown, measured, seeds_of, shuffled, top
from scenario import Context

from streampca.linalg.types import FloatArray
from streampca.processors.private_fpl import PrivateFPL

#: Norm that the planner proposes, over the median of the rows.
FACTOR = 1.5
#: Of the rare long rows: the number, the columns, the share that is long, and the norms of the long and the others.
ROWS, FEATURES, SHARE, LONG, SHORT = 20_000, 30, 0.03, 0.9, 0.16


def norms(context: Context) -> Found:
    """Loss of the last of 100 releases with `row_norm` 1 and with the shorter one, of each table and of `rare` rows.

    ``all`` has the geometric mean (``relative``) and the largest (``worst``) of the ratios of the two over the tables,
    and the largest of the rare rows (``rare``).
    """
    found = {cell: _compared(rows, epsilon, seeds_of(context)) for _, rows, _, epsilon, cell in cells(context)}
    ratios = [values["ratio"] for values in found.values()]
    for epsilon in context.params["epsilons"]:
        found[f"3 % long rows, {epsilon:g}"] = _compared(rare(min(ROWS, context.rows)), epsilon, seeds_of(context))
    rares = [values["ratio"] for name, values in found.items() if name.startswith("3 %")]
    means = {"relative": math.exp(float(np.mean(np.log(ratios)))), "worst": max(ratios), "rare": max(rares)}
    return found | {"all": means}


def rare(n: int) -> FloatArray:
    """Rows of which a few are long, and lie in three directions; all others are short, alike in all directions."""
    source = np.random.default_rng(0)
    rows = source.standard_normal((n, FEATURES))
    rows *= SHORT / np.linalg.norm(rows, axis=1, keepdims=True)
    long = source.permutation(n)[: max(1, round(SHARE * n))]
    axes = np.linalg.qr(source.standard_normal((FEATURES, 3)))[0]
    inside = source.standard_normal((len(long), 3))
    rows[long] = LONG * (inside / np.linalg.norm(inside, axis=1, keepdims=True)) @ axes.T
    return rows


def _compared(rows: FloatArray, epsilon: float, seeds: range) -> dict[str, float]:
    short = min(1.0, FACTOR * float(np.median(np.linalg.norm(rows, axis=1))))
    gram, best = top(rows)
    lost = {1.0: list[float](), short: list[float]()}
    for norm, seed in itertools.product(lost, seeds):
        n = len(rows)
        algorithm = PrivateFPL(n_components=3, epsilon=epsilon, horizon=n, release_every=-(-n // 100))
        subspace = fed(algorithm, shuffled(rows, seed), seed, row_norm=norm).engine.subspace()
        lost[norm].append(1.0 - subspace.captured(gram) / best)
    means = {norm: float(np.mean(losses)) for norm, losses in lost.items()}
    return {"row_norm": short, "loss_of_1": means[1.0], "loss": means[short], "ratio": means[short] / means[1.0]}


if __name__ == "__main__":
    found = measured("row_norm", norms)
    overall = found.pop("all")
    lines = [
        [
            *cell.split(", "),
            f"{of['row_norm']:.2f}",
            f"{of['loss_of_1']:.3g}",
            f"{of['loss']:.3g}",
            f"{of['ratio']:.2f}",
        ]
        for cell, of in found.items()
    ]
    print(markdown(["table", "epsilon", "row norm", "loss with 1", "loss with the row norm", "ratio"], lines))
    print(f"\n{overall}")
