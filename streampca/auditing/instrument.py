"""The auditor: three checks of one case, and what their verdict is worth.

Before them, the numbers of the claim are computed a second time (`auditing.claims`).

*Leak.* A run of a data set D is recorded on a tape. Then its neighbor E runs with that tape forced: equal keys
and coins, and the values that D released. All that can be seen of the two runs must be equal, byte for byte.
*Loss.* The exact values of the two runs are then apart by what the noise has to hide: by the law of the noise
this is a privacy loss, of the adaptive pair.
*Noise.* In runs with fresh keys, half of them on zero rows and half on busy rows, released less exact values must
follow the law, jointly over time, coordinates and runs.

Outputs are g(Y, coins) with Y_i ~ law_i(exact_i(D, Y_<i)): g and the laws do not see D (leak), the loss is the
claimed one (loss), and the noise follows the law (noise). So the claim holds for the neighbors that were tried.

A part *holds* only if mutants made of the same tapes are refuted by the same checks. Where one is not, the
auditor *cannot see*.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from zlib import crc32

import numpy as np

from streampca.auditing.claims import recomputed
from streampca.auditing.decisions import ONE_SIDED, Decisions, watched
from streampca.auditing.laws import (
    Groups,
    Law,
    Loss,
    Spectrum,
    across_groups,
    chance_to_miss,
    groups,
    law_of,
    mu_of,
    noiseless,
    p_values,
    shift,
)
from streampca.auditing.observed import listening, surfaces, views
from streampca.linalg.lattice import GramInParts, grid_step
from streampca.linalg.svec import entry_weights
from streampca.linalg.types import FloatArray
from streampca.privacy.discrete_gaussian import LatticeGram
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.outlet import Counts, LatticeSum
from streampca.privacy.randomness import Note, Tape
from streampca.processors.rewards import REWARD_WEIGHT, GramWithRewards
from streampca.release.release import Release
from streampca.tables import html_table, record_frame

if TYPE_CHECKING:
    import pandas as pd

Verdict = Literal["refuted", "holds", "cannot see"]
#: A row, or a function that chooses it from the stream when it is due.
Row = Any
#: ``feed(subject, rows, how)``: runs the subject, and returns all that can be seen: releases and text.
Feed = Callable[[Any, list[Row], str], list[Any]]
#: Loss beyond the claim that computing it may cause; what the claim allows for may be as little as 1e-9 of it.
_ROUNDING = 1.0 + 1e-10
#: The chance to miss a mutant may not be more, by the laws of the statistics.
MISS = 1e-4
#: Share of the claim below which a case needs a reason why its neighbors spend no more.
_NEARLY = 0.95
_BY_LAW = "not Gaussian, by its law"
_FEWER = "a lower bound from few runs"
#: A quick audit reads all views of a release (cards, pages) in one case of so many.
_DEEP = 8
#: Runs with fresh keys whose decisions are watched.
_WATCHED = 8
#: Further runs for the decisions that had one outcome.
_PATIENCE = 64
#: Fewest runs with fresh keys, and fewest numbers of one time of a group: for correlations of two times.
_FEWEST, _PRODUCTS = 24, 64
#: Changes beyond which a thin case has fewer pairs.
_MANY = 4
#: The most by which runs are multiplied.
_MORE = 8


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """Something to audit.

    Attributes
    ----------
    name : for the command line.
    make : makes the subject; calibration happens here.
    feed : runs it on rows.
    changes : for the subject and d: pairs of rows that are neighbors, by name.
    d, rows : features, and rows of a run.
    positions : numbers of the rows that differ, from 0, or a function of the subject; the first row, one inside and
        the last if left out.
    span : how many rows in succession differ: more than one where a person has several.
    feeds : ways to feed rows.
    busy : rows that are not zero, (rows, d), or a function of the subject; made up if left out.
    plain : rows of the other half of all runs; zero rows if left out.
    law : of a part; that of the subject if left out.
    guarantee : what is claimed; the subject's if left out.
    unseen : numbers of vectors that no release shows.
    checks : ``"leak"`` where only the leak check makes sense.
    slack : why the neighbors tried may spend less than 95 % of the claim; without, the audit cannot see if they do.
    cost : relative cost of a run, for the number of runs.
    quick : whether it is part of a quick audit of everything.
    thin : whether changes are tried on plain or on busy rows, in turn, for want of time.
    """

    name: str
    make: Callable[[], Any]
    feed: Feed
    changes: Callable[[Any, int], Mapping[str, tuple[Row, Row]]]
    d: int = 20
    rows: int = 12
    positions: tuple[int, ...] | Callable[[Any], tuple[int, ...]] = ()
    span: int = 1
    feeds: tuple[str, ...] = ("many", "push", "chunks")
    busy: FloatArray | Callable[[Any], FloatArray] | None = None
    plain: FloatArray | None = None
    law: Callable[[Any, str], Law] | None = None
    guarantee: Callable[[Any], Guarantee] | None = None
    unseen: tuple[int, ...] = ()
    checks: Literal["all", "leak"] = "all"
    slack: str = ""
    cost: float = 1.0
    quick: bool = True
    thin: bool = False

    def positions_of(self, subject: Any) -> tuple[int, ...]:
        """Numbers of the rows that differ."""
        if callable(self.positions):
            return self.positions(subject)
        return self.positions or tuple(dict.fromkeys((0, self.rows // 2, self.rows - 1)))

    def both_rows(self, subject: Any) -> tuple[FloatArray, FloatArray]:
        """Plain rows of a run, and busy ones of norm 0.8; the same in every audit."""
        plain = np.zeros((self.rows, self.d)) if self.plain is None else self.plain
        if self.busy is not None:
            return plain, self.busy(subject) if callable(self.busy) else self.busy
        rows = np.random.default_rng(self.rows).normal(size=(self.rows, self.d)) * np.linspace(1.0, 0.2, self.d)
        return plain, 0.8 * rows / np.linalg.norm(rows, axis=1, keepdims=True)


@dataclass(frozen=True)
class Audit:
    """What was found of one part of one subject.

    Attributes
    ----------
    subject, part : what was audited; a part is a kind of private value.
    verdict : ``"refuted"``, ``"holds"`` or ``"cannot see"``.
    measure : ``"mu"`` or ``"epsilon"``, or ``""`` where nothing is measured.
    claim : the claimed value.
    seen : share of the claim that the noise was shown to have spent, a lower bound; None if it is not measured.
    accounted : share of the claim that the law of the noise accounts for; None if there is none.
    missed : mutants that the checks did not refute.
    witness : what refutes the claim, or why it is not seen in full.
    """

    subject: str
    part: str
    verdict: Verdict
    measure: str = ""
    claim: float = 0.0
    seen: float | None = None
    accounted: float | None = None
    missed: tuple[str, ...] = ()
    witness: str = ""

    @property
    def holds(self) -> bool:
        """True if it holds."""
        return self.verdict == "holds"

    def __str__(self) -> str:
        told = {"seen": self.seen, "accounted": self.accounted}
        shares = [f"{name} {share:.1%}" for name, share in told.items() if share]
        claim = f"{self.measure} = {self.claim:.4g}: " if self.measure else ""
        witness = f" ({self.witness})" if self.witness else ""
        return f"{self.subject}, {self.part}: {claim}{', '.join([self.verdict, *shares])}{witness}"


@dataclass(frozen=True)
class Report:
    """What an audit found: a row for each part.

    Attributes
    ----------
    rows : one `Audit` a part.
    false_alarm : the probability that a true claim is refuted in any of them is at most this.
    """

    rows: tuple[Audit, ...]
    false_alarm: float = 1e-3

    @property
    def holds(self) -> bool:
        """True if every part holds."""
        return all(row.holds for row in self.rows)

    @property
    def refuted(self) -> bool:
        """True if a part is refuted."""
        return any(row.verdict == "refuted" for row in self.rows)

    def to_frame(self) -> pd.DataFrame:
        """The rows as a pandas frame."""
        return record_frame(Audit, self.rows)

    def _repr_html_(self) -> str:
        """The rows as a table, for notebooks."""
        head = ("subject", "part", "verdict", "claim", "seen", "accounted", "witness")
        rows = [
            (r.subject, r.part, r.verdict, f"{r.measure} = {r.claim:.4g}" if r.measure else None,
             *(None if share is None else f"{share:.1%}" for share in (r.seen, r.accounted)), r.witness)
            for r in self.rows
        ]  # fmt: skip
        return html_table(head, rows, note=f"A true claim is refuted with probability at most {self.false_alarm:g}.")

    def to_json(self) -> str:
        """The rows as JSON."""
        return json.dumps([asdict(row) for row in self.rows])

    def __str__(self) -> str:
        return "\n".join(map(str, self.rows))


# -- runs and pairs -----------------------------------------------------------------------------------


class Run(NamedTuple):
    """What is quickly read of the outputs of a run and of what it said, by path; its tape; and the outputs."""

    outputs: list[dict[str, str]]
    tape: Tape
    made: Sequence[Any] = ()

    def notes(self, unseen: Sequence[int] = (), beside: Run | None = None) -> dict[str, list[Note]]:
        """The vectors that were released, by kind; of empty ones only those that are not empty in a run beside it."""
        found: dict[str, list[Note]] = {}
        for i, note in enumerate(self.tape.notes):
            twin = note if beside is None else beside.tape.notes[i]
            if note.exact is not None and (note.noise.size or twin.noise.size) and i not in unseen:
                found.setdefault(note.kind, []).append(note)
        return found


class Pair(NamedTuple):
    """Two neighbors: a run, and the other with the tape of the first forced; and how deep their last releases are read.

    Depths are those of `observed.views`; 0 for none.
    """

    text: str
    first: Run
    second: Run
    depth: int = 0


def fresh_tape(seed: int | None, *label: object) -> Tape:
    """A tape with fresh keys, or with keys derived from a seed and a label."""
    return Tape(seed=None if seed is None else blake2b(repr((seed, *label)).encode(), digest_size=32).digest())


def run(
    case: Case, subject: Any, rows: Iterable[Row], how: str, tape: Tape, *, look: bool = True, most: float = math.inf
) -> Run:
    """Run a case on a tape, and write down what is to be seen if ``look``: outputs, and all that was said meanwhile.

    Decisions are recorded in the first ``most`` runs of equal circumstances.
    An error of the second of two neighbors is something to see, too.
    """
    made, problem = list[Any](), ""
    given = list(rows)
    chosen = tuple(i for i, row in enumerate(given) if callable(row))  # these are pushed one by one, which is public
    with tape.recording(), listening() as said, watched(how, chosen, look, most=most):
        try:
            made = list(case.feed(subject, given, how))
        except Exception as error:
            if tape.forced is None:
                raise
            problem = f"{type(error).__name__}: {error}"
    told = [{"an error": problem}] if problem else []
    told += [{"said": text} for text in said]
    return Run(surfaces(made) + told if look else [], tape, made)


def pairs(case: Case, subject: Any, seed: int | None, *, every: bool) -> Iterator[Pair]:
    """Neighbors: each change at some positions, fed in some ways; of all of them only some unless ``every``.

    A thin case with many changes has plain or busy rows, in turn, about each.
    """
    firsts, turn = dict[tuple[Any, ...], Run](), 0
    changes = case.changes(subject, case.d)
    thin = case.thin and not every and len(changes) > _MANY
    for name, (row, other) in changes.items():
        for position in case.positions_of(subject):
            for base, rows in zip(("plain", "busy"), case.both_rows(subject), strict=True):
                turn += 1
                if thin and turn % 4 > 1:
                    continue

                def with_row(one: Row, rows: FloatArray = rows, position: int = position) -> list[Row]:
                    return [*rows[:position], *[one] * case.span, *rows[position + case.span :]]

                for how in case.feeds if every else (case.feeds[turn % len(case.feeds)],):
                    same = isinstance(row, np.ndarray) and np.array_equal(row, rows[position])
                    key = (base, how) if same else (base, how, position, name)
                    if key not in firsts:
                        firsts[key] = run(case, subject, with_row(row), how, fresh_tape(seed, case.name, "first", key))
                    first = firsts[key]
                    second = run(case, subject, with_row(other), how, Tape(first.tape))
                    depth = 0 if turn != 2 else 2 if every or crc32(case.name.encode()) % _DEEP == 0 else 1
                    yield Pair(f"row {position + 1} of {base} rows, {name}, fed by {how}", first, second, depth)


# -- leak -----------------------------------------------------------------------------------------------


def leak(pair: Pair) -> str:
    """What is different to see, though all released values are equal; empty if nothing is."""
    (outputs, tape, _), (others, other, _) = pair.first, pair.second
    if len(outputs) != len(others):
        return f"{len(outputs)} outputs against {len(others)}"
    for i, (one, two) in enumerate(zip(outputs, others, strict=True)):
        if one != two:
            return f"output {i + 1} differs: {_difference(one, two)}"
    last = [[one for one in run.made if isinstance(one, Release)][-1:] for run in (pair.first, pair.second)]
    if pair.depth and all(last):
        one, two = (views(release, pair.depth) for (release,) in last)
        if one != two:
            return f"the last release differs: {_difference(one, two)}"
    if [(n.kind, n.exact is None) for n in tape.notes] != [(n.kind, n.exact is None) for n in other.notes]:
        return "other vectors of noise are drawn"
    for i, (note, twin) in enumerate(zip(tape.notes, other.notes, strict=True)):
        problem = _law_differs(note, twin) if note.exact is not None else ""
        if problem:
            return f"vector {i + 1}, {note.kind}: {problem}"
    return _drawn_twice(tape)


def _difference(one: Mapping[str, str], other: Mapping[str, str]) -> str:
    """The first path at which two runs differ, and how."""
    path = next(name for name in {**one, **other} if one.get(name) != other.get(name))
    values = one.get(path, "nothing"), other.get(path, "nothing")
    at = next((i for i, (a, b) in enumerate(zip(*values, strict=False)) if a != b), min(map(len, values)))
    near = slice(max(0, at - 30), at + 30)
    return f"{path}, ...{values[0][near]!r} against {values[1][near]!r}"


def _law_differs(note: Note, twin: Note) -> str:
    """Whether equal random numbers gave other noise; noise on counts depends on which there are."""
    if note.std != twin.std:
        return f"noise_std is {note.std!r} against {twin.std!r}"
    if isinstance(note.exact, Counts):
        mine, other = ((n.exact.names, (n.exact.counts > 0).tobytes()) for n in (note, twin))
        if mine != other:
            return ""
    return "" if np.array_equal(note.noise, twin.noise) else "equal random numbers give other noise"


def _drawn_twice(tape: Tape) -> str:
    """Whether one vector hid two different values."""
    known: dict[bytes, Note] = {}
    for note in tape.notes:
        if note.exact is not None:
            before = known.setdefault(note.draws.name, note)
            if before is not note and not _alike(groups(before, noiseless(before)), groups(note, noiseless(note))):
                return f"one vector of noise hides two values, {note.kind}"
    return ""


def _alike(one: Any, two: Any) -> bool:
    if isinstance(one, (tuple, Mapping)):
        keys = list(one) if isinstance(one, Mapping) else range(len(one))
        return len(one) == len(two) and all(_alike(one[key], two[key]) for key in keys)
    return bool(np.array_equal(one, two))


Publish = Callable[[Any, Any, float], Any]


def honest(exact: Any, noise: Any, std: float) -> Any:
    """Release a value."""
    return exact.noisy(noise, std)


def low_digits(exact: Any, noise: Any, std: float) -> Any:
    """A mutant of it: exact numbers far below the noise."""
    value, digits = exact.noisy(noise, std), exact.noisy(np.zeros_like(noise), 1e-300)
    first = value[0] if isinstance(value, tuple) else value
    first += (digits[0] if isinstance(digits, tuple) else digits) * 2.0**-30
    return value


def tells(note: Note, twin: Note, publish: Publish = honest) -> bool | None:
    """Whether a release tells exact values by its low digits: it must not change if they and the noise move opposite.

    It has none below the grid of its noise. None where the values are not on a lattice.
    """
    exact, other = note.exact, twin.exact
    d = getattr(getattr(exact, "gram", exact), "n_features", None)
    noise = np.asarray(note.noise, dtype=np.float64)
    if isinstance(exact, LatticeGram):
        moved = _packed(twin) - _packed(note)
        pair = note.noise, note.noise - np.rint(moved * 2.0**40).astype(np.int64)
    elif d is not None:
        weights, unit = entry_weights(d), 2.0**-40
        packed = np.rint(noise[: weights.size] * weights / unit) * unit
        moved = _packed(twin) - _packed(note)
        extra = [np.zeros(0)] * 2
        if isinstance(exact, GramWithRewards):
            told = [groups(n, noiseless(n))["rewards"] for n in (note, twin)]
            unit = 2.0**-30 / exact.rewards.scale
            rest = np.rint(noise[-1:] / REWARD_WEIGHT / unit) * unit
            extra = [REWARD_WEIGHT * rest, REWARD_WEIGHT * (rest - told[1] + told[0])]
        pair = np.append(packed / weights, extra[0]), np.append((packed - moved) / weights, extra[1])
    elif isinstance(exact, LatticeSum):
        noise = np.rint(noise.reshape(exact.values.shape) / exact.grid) * exact.grid
        pair = noise, noise - (other.values - exact.values)
    else:
        return None
    value = note.value[0] if isinstance(note.value, tuple) else note.value
    finest = 1.0 if isinstance(exact, GramInParts) else math.inf
    if not isinstance(exact, LatticeGram) and np.remainder(value, min(grid_step(note.std), finest)).any():
        return True
    return not _alike(publish(exact, pair[0], note.std), publish(other, pair[1], note.std))


def _packed(note: Note) -> FloatArray:
    value = noiseless(note)
    value = value[0] if isinstance(value, tuple) else value
    packed: FloatArray = value.sum(axis=0) if value.ndim == 2 else value
    return packed


# -- one case ---------------------------------------------------------------------------------------------


@dataclass
class _Part:
    """What is known of one kind of private value."""

    law: Law
    ratio: float = 0.0
    witness: str = ""
    tells: str = ""
    lattice: bool = False
    mutant_tells: bool = False
    moved: list[dict[str, Groups]] = field(default_factory=list)
    noise: dict[str, list[FloatArray]] = field(default_factory=dict)


def audit_case(case: Case, **given: Any) -> list[Audit]:
    """Audit one case, with the arguments of `_audited`, and add the decisions that had one outcome in all of its runs.

    A decision counts if it depends on rows (`auditing.decisions`), unless `ONE_SIDED` has a reason for it.
    """
    with Decisions().watching() as decisions:
        rows = _audited(case, **given)
        if any(row.verdict == "refuted" for row in rows):
            return rows
        # Where noise decides, the rarer outcome may need more runs with fresh keys than the audit of the noise did.
        subject, runs = None, 0
        while left := [str(one) for one in decisions.one_sided if one.name not in ONE_SIDED]:
            if runs == _PATIENCE:
                witness = f"one outcome only: {'; '.join(left)}"
                return [*rows, Audit(case.name, "decisions", "cannot see", witness=witness)]
            subject = subject or case.make()  # calibration takes time, and most cases come here with nothing left
            tape = fresh_tape(given["seed"], case.name, "decisions", runs)
            run(case, subject, case.both_rows(subject)[runs % 2], case.feeds[0], tape, look=False, most=math.inf)
            runs += 1
    return rows


def _audited(
    case: Case, *, numbers: int, error: float, every: bool, seed: int | None, stop: bool = False
) -> list[Audit]:
    """Audit one case: claim, leak, loss and noise.

    Parameters
    ----------
    case : what to audit.
    numbers : how many numbers of each group of noise to collect.
    error : probability that a true claim is refuted.
    every : all neighbors in all ways.
    seed : for fixed keys.
    stop : return as soon as something is refuted.
    """
    subject = case.make()
    claim = case.guarantee(subject) if case.guarantee else subject.guarantee
    measure, value = ("epsilon", claim.epsilon) if claim.mu is None else ("mu", claim.mu)
    parts, rows = dict[str, _Part](), dict[str, Audit]()

    def add(kind: str, verdict: Verdict, share: float | None, missed: tuple[str, ...], witness: str) -> None:
        rows[kind] = Audit(case.name, kind, verdict, measure, value, share, parts[kind].ratio, missed, witness)

    for i, pair in enumerate(pairs(case, subject, seed, every=every)):
        if i == 0 and (
            wrong := [one for one in recomputed(subject, case.d, claim, pair.first.tape.notes) if one.refuted]
        ):
            return [Audit(case.name, "claim", "refuted", measure, value, witness=str(wrong[0]))]
        if problem := leak(pair):
            return [Audit(case.name, "leak", "refuted", witness=f"{pair.text}: {problem}")]
        if case.checks == "all":
            _account(case, subject, pair, claim, parts)
            for kind, part in parts.items():
                if witness := part.tells or (part.witness if part.ratio > _ROUNDING else ""):
                    add(kind, "refuted", None, (), witness)
            if stop and rows:
                return list(rows.values())
    bypassed = case.checks == "leak" or any(part.ratio > 0.0 for part in parts.values())
    missed: tuple[str, ...] = () if bypassed else ("outlet bypassed",)
    leaks = Audit(case.name, "leak", "cannot see" if missed else "holds", missed=missed)
    if case.checks == "leak":
        return [leaks]
    busy = _collect(case, subject, seed, parts, numbers, error)
    for kind in parts.keys() - rows.keys():
        share, missed, witness = _judged(kind, parts, busy, claim, error / len(parts))
        if missed:
            witness = f"missed: {', '.join(missed)}" if parts[kind].ratio else "no neighbor moves it"
        verdict: Verdict = "cannot see" if missed else "refuted" if witness else "holds"
        if verdict == "holds" and parts[kind].ratio < _NEARLY:
            witness = case.slack
            if not witness:
                verdict, witness = "cannot see", "no neighbor spends 95 % of the claim, and no reason is known"
        elif verdict == "holds" and (share is None or share < _NEARLY):
            witness = _BY_LAW if share is None else _FEWER
        add(kind, verdict, share, missed, witness)
    return [leaks, *(rows[kind] for kind in parts)]


def _account(case: Case, subject: Any, pair: Pair, claim: Guarantee, parts: dict[str, _Part]) -> None:
    """Add what one pair of neighbors loses to the parts that it moves."""
    first, second = pair.first.notes(case.unseen, pair.second), pair.second.notes(case.unseen, pair.first)
    losses = dict[str, Loss]()
    for kind, notes in first.items():
        if kind not in parts:
            parts[kind] = _Part(case.law(subject, kind) if case.law else law_of(subject, case.d, kind))
        part = parts[kind]
        losses[kind] = part.law.loss(notes, second[kind], claim)
        entered = next((p for p in zip(notes, second[kind], strict=True) if _moves(*p)), None)
        if entered is not None and (told := tells(*entered)) is not None:
            part.lattice, part.mutant_tells = True, part.mutant_tells or bool(tells(*entered, low_digits))
            if told:
                part.tells = f"{pair.text}: low digits of the release follow the exact value"
    lost = {kind: loss for kind, loss in losses.items() if loss.ratio > 0.0}
    gaussian = all(loss.moved for loss in lost.values())
    ratios = [loss.ratio for loss in lost.values()]
    total = math.hypot(*ratios) if gaussian else sum(ratios)
    for kind, loss in lost.items():
        part = parts[kind]
        if gaussian:
            part.moved.append({name: one.moved for name, one in lost.items()})
        if total > part.ratio:
            part.ratio, part.witness = total, f"{pair.text}: {loss.text}"


def _moves(note: Note, twin: Note) -> bool:
    return not isinstance(note.exact, Counts) and any(part.any() for part in shift(note, twin).values())


def _collect(
    case: Case, subject: Any, seed: int | None, parts: Mapping[str, _Part], numbers: int, error: float
) -> list[bool]:
    """Run with fresh keys, and add the noise to the parts as standard normals, by group, one array a run.

    Runs are doubled, up to `_MORE` times, until the chances to miss a mutant are small; they do not depend on values.
    Returns which runs were of busy rows.
    """
    rows, wanted, made, most = case.both_rows(subject), _FEWEST, 0, math.inf
    while made < wanted:
        tape = fresh_tape(seed, case.name, "noise", made)
        done = run(case, subject, rows[made % 2], case.feeds[0], tape, look=False, most=_WATCHED)
        for kind, notes in done.notes(case.unseen).items():
            for group, noise in parts[kind].law.standard(notes).items() if kind in parts else ():
                if noise.size:
                    parts[kind].noise.setdefault(group, []).append(noise)
        made += 1
        if made == _FEWEST and most == math.inf:  # of few coordinates, only the scale is measured: over all times
            found = (item for part in parts.values() for item in part.noise.items())
            shapes = [runs[0].shape for group, runs in found if group != "order"]
            least = min((n if n > 4 else t * n for t, n in shapes), default=1)
            products = _PRODUCTS / min((n for t, n in shapes if t > 1), default=_PRODUCTS)
            wanted = max(_FEWEST, math.ceil(numbers / case.cost / least), math.ceil(products))
            most = _MORE * wanted
        if made == wanted < most and any(_chances(part, error / len(parts)) > MISS for part in parts.values()):
            wanted *= 2
    return [bool(i % 2) for i in range(made)]


def _chances(part: _Part, error: float) -> float:
    """The largest chance to miss a mutant of a part."""
    groups = [runs for group, runs in part.noise.items() if group != "order"]
    return max((max(chance_to_miss(runs, _level(part, error)).values()) for runs in groups), default=0.0)


def _level(part: _Part, error: float) -> float:
    """Significance of all tests of a group of noise: a half of the error is for the claim, a half for the noise."""
    return 0.5 * error / (len(part.noise) + 1)


def _judged(
    kind: str, parts: Mapping[str, _Part], busy: Sequence[bool], claim: Guarantee, error: float
) -> tuple[float | None, tuple[str, ...], str]:
    """What was seen of one part, the mutants that were missed, and what refutes it.

    The error is split: a half for the claim, a half for the noise.
    """
    part, share = parts[kind], None
    level = _level(part, error)
    if part.moved:
        involved = {(name, group): a for moved in part.moved for name, of in moved.items() for group, a in of.items()}
        if any(group not in parts[name].noise for name, group in involved):
            return None, ("no run with fresh keys drew its noise",), ""
        spectra = {
            (name, group): Spectrum(parts[name].noise[group], joined=len(a) == 1)
            for (name, group), a in involved.items()
        }

        def measured(moved: Mapping[str, Groups], level: float) -> float:
            shifts = [(spectra[name, group], a) for name, of in moved.items() for group, a in of.items()]
            return sum(spectrum.mu_squared(a, level / len(spectra)) for spectrum, a in shifts)

        # Half of the error is for the neighbors that are the farthest apart by the law, half for all of them together.
        worst = max(part.moved, key=lambda moved: sum(np.sum(a * a) for of in moved.values() for a in of.values()))
        found = [measured(moved, 0.25 * error / len(part.moved)) for moved in part.moved]
        share = math.sqrt(max(measured(worst, 0.25 * error), *found)) / mu_of(claim)

    def unlawful(of: Mapping[str, list[FloatArray]]) -> str:
        for group, runs in of.items():  # what only busy rows show is not compared with zero rows
            found = p_values(runs, busy if len(runs) == len(busy) else [False] * len(runs))
            name, p = min(found.items(), key=lambda item: item[1])
            if p * len(found) < level:
                return f"noise{' ' + group if group else ''} does not follow its law: {name}, p = {p:.1e}"
        p = across_groups([runs for group, runs in of.items() if group not in ("order", "trace")])
        return f"noise of two groups is correlated, p = {p:.1e}" if p < level else ""

    if witness := unlawful(part.noise):
        return share, (), witness
    if share is not None and share > 1.0:
        return share, (), f"the noise shows {share:.1%} of the claim"
    missed = [] if part.ratio > 0.0 else ["outlet bypassed"]
    for group, runs in part.noise.items():
        if group != "order":
            of = f" ({group})" if len(part.noise) > 1 else ""
            chances = chance_to_miss(runs, level)
            mutants = {
                "half the noise": [0.5 * one for one in runs],
                "last release bare": _bare(runs),
                "noise repeated": _repeated(runs),
            }
            for name, noise in mutants.items():
                if chances[name] > MISS or not unlawful({**part.noise, group: noise}):
                    missed.append(name + of)
    if part.lattice and not part.mutant_tells:
        missed.append("exact low digits")
    return share, tuple(missed), ""


def _bare(runs: Sequence[FloatArray]) -> list[FloatArray]:
    """The last release without noise; where there is one, its last coordinate."""
    made = [one.copy() for one in runs]
    for one in made:
        (one if len(one) > 1 else one.T)[-1] = 0.0
    return made


def _repeated(runs: Sequence[FloatArray]) -> list[FloatArray]:
    """Every second release with the noise of the one before; where there is one, every second run."""
    made = [one.copy() for one in runs]
    for i, one in enumerate(made):
        if len(one) > 1:
            one[1::2] = one[: len(one) // 2 * 2 : 2]
        elif i % 2:
            width = min(one.size, made[i - 1].size)
            one[0, :width] = made[i - 1][0, :width]
    return made
