"""Audit of one case by three checks, each of which must also refute mutants of the same runs.

Before them, the numbers of the claim are computed a second time (`auditing.claims`).

*Leak.* A run of a data set D is recorded on a tape. Then its neighbor E runs with that tape forced: equal keys and
coins, and the values that D released. Everything that can be seen of the two runs must be equal, byte for byte.
*Loss.* The exact values of the two runs differ by what the noise has to hide. Under the law of the noise this is a
privacy loss, of the adaptive pair.
*Noise.* In runs with fresh keys, half of them on plain rows and half on busy rows, released minus exact values must
follow the law, jointly over time, coordinates and runs.

Outputs are g(Y, coins) with Y_i ~ law_i(exact_i(D, Y_<i)). g and the laws do not depend on D (leak), the loss is the
claimed one (loss), and the noise follows the law (noise). So the claim holds for the neighbors that were tried.

A part *holds* only if the checks refute mutants made from the same tapes. Otherwise the auditor *cannot see*.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from streampca.auditing.claims import recomputed
from streampca.auditing.laws import Groups, Law, Loss, law_of, mu_of, shift
from streampca.auditing.leak import digits_differ, leak, low_digits
from streampca.auditing.runs import Case, Pair, fresh_tape, pairs, run
from streampca.auditing.statistics import Spectrum, across_groups, chance_to_miss, p_values
from streampca.linalg.types import FloatArray
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.outlet import Counts
from streampca.tables import record_frame

if TYPE_CHECKING:
    import pandas as pd

Verdict = Literal["refuted", "holds", "cannot see"]
#: Loss over the claim that rounding may cause; a share of the claim may be as small as 1e-9 of it.
_ROUNDING = 1.0 + 1e-10
#: Largest chance to miss a mutant, by the laws of the statistics.
MISS = 1e-4
#: Share of the claim below which a case needs a reason why its neighbors spend less.
_NEARLY = 0.95
#: Fewest runs with fresh keys, and fewest numbers of one time of a group for correlations of two times.
_FEWEST, _PRODUCTS = 24, 64
#: Largest factor by which runs are multiplied, and the factor of one step.
_MORE, _STEP = 8, 1.2


@dataclass(frozen=True)
class Audit:
    """Result of an audit of one part of one subject."""

    subject: str  #: what was audited
    part: str  #: kind of private value
    verdict: Verdict  #: "refuted", "holds" or "cannot see"
    measure: str = ""  #: "mu" or "epsilon", the unit of the claim; empty if nothing is measured
    claim: float = 0.0  #: claimed value
    seen: float | None = None  #: share of the claim that the noise was shown to have spent, a lower bound
    accounted: float | None = None  #: share of the claim that the law of the noise accounts for
    missed: tuple[str, ...] = ()  #: mutants that the checks did not refute
    witness: str = ""  #: evidence against the claim, or the reason why it is not seen in full

    @property
    def holds(self) -> bool:
        """Whether the claim holds."""
        return self.verdict == "holds"

    def __str__(self) -> str:
        shares = [f"{name} {share:.1%}" for name in ("seen", "accounted") if (share := getattr(self, name))]
        claim = f"{self.measure} = {self.claim:.4g}: " if self.measure else ""
        witness = f" ({self.witness})" if self.witness else ""
        return f"{self.subject}, {self.part}: {claim}{', '.join([self.verdict, *shares])}{witness}"


@dataclass(frozen=True)
class Report:
    """Results of an audit: ``rows``, one for each part.

    ``false_alarm`` bounds the probability that a true claim is refuted in any of them.
    """

    rows: tuple[Audit, ...]
    false_alarm: float = 1e-3
    holds: bool = field(init=False, repr=False, compare=False)  # whether every part holds
    refuted: bool = field(init=False, repr=False, compare=False)  # whether a part is refuted

    def __post_init__(self) -> None:
        holds, refuted = all(row.holds for row in self.rows), any(row.verdict == "refuted" for row in self.rows)
        vars(self).update(holds=holds, refuted=refuted)

    def to_frame(self) -> pd.DataFrame:
        """Return the rows as a pandas frame."""
        return record_frame(Audit, self.rows)

    def _repr_html_(self) -> str:
        note = f"A true claim is refuted with probability at most {self.false_alarm:g}."
        return f"{self.to_frame().to_html(index=False)}<p>{note}</p>"

    def to_json(self) -> str:
        """Return the rows as JSON."""
        return json.dumps([asdict(row) for row in self.rows])

    def __str__(self) -> str:
        return "\n".join(map(str, self.rows))


@dataclass
class _Part:
    """Evidence on one kind of private value."""

    law: Law
    # Largest loss over the claim, and the neighbors that lose it.
    ratio: float = 0.0
    witness: str = ""
    # Whether low digits were compared, whether they depend on exact values, and whether those of the mutant do.
    compared: bool = False
    digits: str = ""
    mutant_differs: bool = False
    # Differences of neighbors in units of Gaussian noise, by kind; and noise as standard normals, one array a run.
    moved: list[dict[str, Groups]] = field(default_factory=list)
    noise: dict[str, list[FloatArray]] = field(default_factory=dict)

    def level(self, error: float) -> float:
        """Return the significance of all tests of a group of noise: half of the error is for the claim (`_judged`)."""
        return 0.5 * error / (len(self.noise) + 1)


def audit_case(
    case: Case, *, numbers: int, error: float, every: bool, seed: int | None, stop: bool = False
) -> list[Audit]:
    """Audit one case: claim, leak, loss and noise.

    A true claim is refuted with probability ``error``. ``numbers`` of each group of noise are collected.
    ``every`` tries all neighbors in all ways, and ``stop`` returns as soon as something is refuted.
    """
    subject = case.make()
    claim = case.guarantee(subject) if case.guarantee else subject.guarantee
    measure, value = ("epsilon", claim.epsilon) if claim.mu is None else ("mu", claim.mu)
    parts, rows = dict[str, _Part](), dict[str, Audit]()

    # Neighbors: the claim by recomputation, the leak check, and the loss.
    for i, pair in enumerate(pairs(case, subject, seed, every=every)):
        claims = recomputed(subject, case.d, claim, pair.first.tape.notes) if i == 0 else []
        if wrong := [one for one in claims if one.refuted]:
            return [Audit(case.name, "claim", "refuted", measure, value, witness=str(wrong[0]))]
        if problem := leak(pair):
            return [Audit(case.name, "leak", "refuted", witness=f"{pair.text}: {problem}")]
        if case.checks == "all":
            _account(case, subject, pair, claim, parts)
            for kind, part in parts.items():
                # The ratio is exact up to rounding, so no error probability is spent: any excess refutes the claim.
                if witness := part.digits or (part.witness if part.ratio > _ROUNDING else ""):
                    rows[kind] = Audit(case.name, kind, "refuted", measure, value, None, part.ratio, (), witness)
            if stop and rows:
                return list(rows.values())
    bypassed = case.checks == "leak" or any(part.ratio > 0.0 for part in parts.values())
    missed: tuple[str, ...] = () if bypassed else ("outlet bypassed",)
    leaks = Audit(case.name, "leak", "cannot see" if missed else "holds", missed=missed)
    if case.checks == "leak":
        return [leaks]

    # Runs with fresh keys: the noise, and the share of the claim that it shows.
    busy = _collect(case, subject, seed, parts, numbers, error / max(len(parts), 1))
    for kind in parts.keys() - rows.keys():
        share, missed, witness = _judged(kind, parts, busy, claim, error / len(parts))
        ratio = parts[kind].ratio
        if missed:
            witness = f"missed: {', '.join(missed)}" if ratio else "no neighbor moves it"
        verdict: Verdict = "cannot see" if missed else "refuted" if witness else "holds"
        if verdict == "holds" and ratio < _NEARLY:
            witness = case.slack
            if not witness:
                verdict, witness = "cannot see", "no neighbor spends 95 % of the claim, and no reason is known"
        elif verdict == "holds" and (share is None or share < _NEARLY):
            witness = "not Gaussian, by its law" if share is None else "a lower bound from few runs"
        rows[kind] = Audit(case.name, kind, verdict, measure, value, share, ratio, missed, witness)
    return [leaks, *(rows[kind] for kind in parts)]


def _account(case: Case, subject: Any, pair: Pair, claim: Guarantee, parts: dict[str, _Part]) -> None:
    """Add the loss of one pair of neighbors to the parts in which they differ."""
    first, second = pair.first.notes(case.unseen, pair.second), pair.second.notes(case.unseen, pair.first)
    lost = dict[str, Loss]()
    for kind, notes in first.items():
        if kind not in parts:
            parts[kind] = _Part(case.law(subject, kind) if case.law else law_of(subject, case.d, kind))
        part = parts[kind]
        loss = part.law.loss(notes, second[kind], claim)
        if loss.ratio > 0.0:
            lost[kind] = loss
        # The first vector with different exact values is the one in which the changed row enters.
        twins = (x for x in zip(notes, second[kind], strict=True) if not isinstance(x[0].exact, Counts))
        entered = next((x for x in twins if any(one.any() for one in shift(*x).values())), None)
        if entered is not None and (differ := digits_differ(*entered)) is not None:
            part.compared = True
            part.mutant_differs = part.mutant_differs or bool(digits_differ(*entered, low_digits))
            if differ:
                part.digits = f"{pair.text}: low digits of the release follow the exact value"
    # Losses of Gaussian parts compose as the root of their sum of squares, others by their sum.
    gaussian, ratios = all(loss.moved for loss in lost.values()), [loss.ratio for loss in lost.values()]
    total = math.hypot(*ratios) if gaussian else sum(ratios)
    for kind, loss in lost.items():
        part = parts[kind]
        if gaussian:
            part.moved.append({name: one.moved for name, one in lost.items()})
        if total > part.ratio:
            part.ratio, part.witness = total, f"{pair.text}: {loss.text}"


def _collect(
    case: Case, subject: Any, seed: int | None, parts: Mapping[str, _Part], numbers: int, error: float
) -> list[bool]:
    """Add the noise of runs with fresh keys to the parts, and return which runs had busy rows.

    Runs are added, up to a factor of `_MORE`, until the chances to miss a mutant are small. These depend on the shapes
    of the noise only, so the number of runs does not depend on the numbers that are tested.
    """
    rows, wanted, count, most = case.both_rows(subject), _FEWEST, 0, 0
    while count < wanted:
        tape = fresh_tape(seed, case.name, "noise", count)
        done = run(case, subject, rows[count % 2], case.feeds[0], tape, look=False)
        for kind, notes in done.notes(case.unseen).items():
            for group, noise in parts[kind].law.standard(notes).items() if kind in parts else ():
                if noise.size:
                    parts[kind].noise.setdefault(group, []).append(noise)
        count += 1
        if count < wanted:
            continue
        tested = [(runs, part.level(error)) for part in parts.values() for runs in part.noise.values()]
        if not most:
            # Of few coordinates only the scale is measured, over all times together.
            shapes = [runs[0].shape for runs, _ in tested]
            least = min((n if n > 4 else t * n for t, n in shapes), default=1)
            products = _PRODUCTS / min((n for t, n in shapes if t > 1), default=_PRODUCTS)
            wanted = max(_FEWEST, math.ceil(numbers / case.cost / least), math.ceil(products))
            most = _MORE * wanted
        if count == wanted < most and any(max(chance_to_miss(*one).values()) > MISS for one in tested):
            wanted = min(most, math.ceil(_STEP * wanted))
    return [bool(i % 2) for i in range(count)]


def _judged(
    kind: str, parts: Mapping[str, _Part], busy: Sequence[bool], claim: Guarantee, error: float
) -> tuple[float | None, tuple[str, ...], str]:
    """Return the share of the claim that one part shows, the missed mutants, and the evidence against the claim."""
    part, share = parts[kind], None
    level = part.level(error)
    if part.moved:
        involved = {(name, group): a for moved in part.moved for name, of in moved.items() for group, a in of.items()}
        if any(group not in parts[name].noise for name, group in involved):
            return None, ("no run with fresh keys drew its noise",), ""
        spectra = {of: Spectrum(parts[of[0]].noise[of[1]], joined=len(a) == 1) for of, a in involved.items()}

        def measured(moved: Mapping[str, Groups], level: float) -> float:
            shifts = [(spectra[name, group], a) for name, of in moved.items() for group, a in of.items()]
            return sum(spectrum.mu_squared(a, level / len(spectra)) for spectrum, a in shifts)

        # Half of the error is for the neighbors that are the farthest apart by the law, half for all of them together.
        worst = max(part.moved, key=lambda moved: sum(np.sum(a * a) for of in moved.values() for a in of.values()))
        bounds = [measured(moved, 0.25 * error / len(part.moved)) for moved in part.moved]
        share = math.sqrt(max(measured(worst, 0.25 * error), *bounds)) / mu_of(claim)

    def unlawful(changed: Mapping[str, list[FloatArray]]) -> str:
        """Return the evidence against the groups in ``changed``, among the others of the part."""
        for group, runs in changed.items():  # noise of busy rows only is not compared with that of plain rows
            found = p_values(runs, busy if len(runs) == len(busy) else [False] * len(runs))
            name, p = min(found.items(), key=lambda item: item[1])
            if p * len(found) < level:
                return f"noise{' ' + group if group else ''} does not follow its law: {name}, p = {p:.1e}"
        # The trace of a matrix depends on its diagonal entry.
        p = across_groups([runs for group, runs in {**part.noise, **changed}.items() if group != "trace"])
        return f"noise of two groups is correlated, p = {p:.1e}" if p < level else ""

    if witness := unlawful(part.noise):
        return share, (), witness
    if share is not None and share > 1.0:
        return share, (), f"the noise shows {share:.1%} of the claim"
    missed = [] if part.ratio > 0.0 else ["outlet bypassed"]
    for group, runs in part.noise.items():
        of = f" ({group})" if len(part.noise) > 1 else ""
        chances = chance_to_miss(runs, level)
        for name, noise in _mutants(runs).items():
            if chances[name] > MISS or not unlawful({group: noise}):
                missed.append(name + of)
    if part.compared and not part.mutant_differs:
        missed.append("exact low digits")
    return share, tuple(missed), ""


def _mutants(runs: Sequence[FloatArray]) -> dict[str, list[FloatArray]]:
    """Return noise with mistakes that the tests of the noise must refute."""
    bare, repeated = [one.copy() for one in runs], [one.copy() for one in runs]
    for i, (one, again) in enumerate(zip(bare, repeated, strict=True)):
        if len(one) > 1:
            one[-1] = 0.0
            again[1::2] = again[: len(one) // 2 * 2 : 2]
            continue
        # Of a single release, the last coordinate has no noise, and every second run has that of the one before.
        one[:, -1] = 0.0
        if i % 2:
            width = min(again.size, repeated[i - 1].size)
            again[0, :width] = repeated[i - 1][0, :width]
    return {"half the noise": [0.5 * one for one in runs], "last release bare": bare, "noise repeated": repeated}
