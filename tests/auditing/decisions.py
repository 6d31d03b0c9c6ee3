"""Decisions that depend on rows: each must have both outcomes in the runs of a case.

While a case runs, every comparison and every condition in the code where exact and released values flow records its
operands and its outcome: its functions have other code, compiled from their source with the records added. A decision
depends on rows if its operands differ between runs of equal public circumstances, whether or not its outcome differs.
If it had one outcome in all runs of a case, its other side was not audited: the case *cannot see* it, and needs other
rows. So this watches the cases of the wheel, which `streampca audit` then runs without it.
"""

import ast
import gc
import importlib
import math
import pkgutil
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from pathlib import Path
from types import CodeType, FunctionType
from unittest import mock

import numpy as np

import streampca
from streampca.auditing import instrument, runs
from streampca.auditing.instrument import Audit

#: Packages and modules in which exact values, and values released from them, decide.
WATCHED = (
    "streampca.linalg.scale", "streampca.rows.admission", "streampca.rows.bounds", "streampca.mechanisms",
    "streampca.papers", "streampca.privacy.outlet", "streampca.processors", "streampca.rows.people",
)  # fmt: skip
#: Functions of types and lengths: their result is an operand, but their arguments are not.
_OF_TYPES = ("callable", "hasattr", "is_frame", "isinstance", "len", "type")
#: Names of modules, whose attributes are no operands.
_MODULES = ("np", "math", "scipy", "special", "stats")
#: Longer arrays are not compared.
_MOST = 1 << 15
#: Further runs with fresh keys for decisions that had one outcome.
_PATIENCE = 64


_ELSEWHERE = "both outcomes occur in other cases: of bad rows, long rows, more rows, or votes for fixed bins"
#: Decisions that may have one outcome in a case, by reason: a line for each, "file function: text".
_REASONS = {
    _ELSEWHERE: """
        rows/bounds.py PrivateBounds.found: column[occupied].sum() < _COVERED * len(bins)
        rows/bounds.py _occupied: occupied.any()
        rows/bounds.py _occupied: (tail := counts[last + 1:last + 1 + _TAIL]).size
        rows/bounds.py _occupied: np.cumsum(tail) > np.where(sizes == 1, _BESIDE, _TOGETHER) * std * np.sqrt(sizes)
        rows/bounds.py _occupied: clear.any()
        rows/bounds.py _range_of: places.size
        rows/admission.py Admission.block: np.vdot(rows, rows) < math.inf
        rows/admission.py Admission.block: reasons >= 0
        rows/admission.py Admission._usable: marks < len(REASONS)
        rows/admission.py Admission._usable: bad.any()
        rows/admission.py Admission._usable: gaps.any()
        rows/admission.py Admission.row: square <= 1.0
        mechanisms/histogram.py _above: noisy > threshold + 0.5 * GRID
        mechanisms/norm_maps.py NormEstimate.of: \
            hidden > max(_ALARM * math.hypot(lost_std, shown_std), noise_norm)
        mechanisms/norm_maps.py NormEstimate.of: radius == 1.0
        mechanisms/exact_subspace.py primitive: next((e for e in entries if e)) < 0
        papers/subspace_perturbation.py SubspacePerturbation.projector_loses_less: \
            sigma * n_rows <= self.n_components * self._gram_std
        papers/subspace_perturbation.py SubspacePerturbation.released: self.projector_loses_less(sigma, n_rows)
        papers/subspace_perturbation.py SubspacePerturbation.released: bound > 2.0 * moves
        processors/private_oja.py clipped_gradients: norms.max() > bound
    """,
    "the other outcome requires sums for which runs of an audit are too short, and follows from released values": """
        processors/dp_pca.py PrivateRange.decide: winner == _ZERO
        papers/doubling.py Doubling.passed: found > self.opt_guess - self.quantile(leaf)
        papers/doubling.py DoublingProcessor.next_epoch: doubling.passed(own, self.noise.n)
    """,
    "only occupied bins are counted; the other outcome is that of a caller with empty ones": """
        mechanisms/histogram.py _above: counts > 0
    """,
    "two ways to the same numbers, or a guard of a division": """
        privacy/outlet.py _bytes_of: part.size
        rows/people.py Columns.products: n <= 4 * count
        papers/subspace_perturbation.py projector_shift: bound > moves
        processors/oja.py orthonormalise: diagonal.max() <= _WELL_CONDITIONED * diagonal.min()
    """,
    "computed from released values only": """
        linalg/scale.py column_bounds: 0.5 * upper - 0.5 * lower > 1e-300
        rows/bounds.py _range_of: (places == LEVELS).all()
        rows/bounds.py _range_of: 0.25 * lower <= upper < 0.0
        rows/bounds.py _range_of: 0.0 < lower <= 0.25 * upper
        rows/bounds.py _edge: level == 0
        rows/bounds.py _edge: level > 0
        mechanisms/norm_maps.py Model.choose: ratio < best_ratio
        processors/base.py Processor.run: name != self.run
    """,
    "a count in the curator's own report": """
        rows/admission.py Counts.plain: self.votes
        rows/admission.py Marks.counts: cells[rows].any()
        rows/admission.py Marks.counts: found >= 0
    """,
    "weights are functions of a person's own rows, and both outcomes occur in tests/rows/test_people.py": """
        rows/people.py _Spent.add: identity in self
        rows/people.py _Spent.add: 3 * self.count >= len(self._table)
        rows/people.py _Spent.ids: one != empty
        rows/people.py _found: (one := table[place])
        rows/people.py _found: table[place + 1]
        rows/people.py _found: one == first
        rows/people.py _found: table[place + 1] == second
        rows/people.py Budgets.enter: state == SPENT
        rows/people.py Budgets.weighted: identity in changes
        rows/people.py Budgets.weighted: state == SPENT
        rows/people.py Budgets.weighted: state is None
        rows/people.py Budgets.weighted: identity in self._spent
        rows/people.py Budgets.weighted: after == SPENT
        rows/people.py Budgets.weighted: after is not None
        rows/people.py Budgets.weighted: root > 0.0
        rows/people.py Budgets.weighted: root == 0.0
        rows/people.py Budgets.weighted: root == 1.0
        rows/people.py Budgets.voted: identity in changes
        rows/people.py Budgets.voted: identity in self._spent
        rows/people.py Budgets._charged: self._own[0] != n
        rows/people.py Budgets._charged: total > room
        rows/people.py Budgets._charged: total == 0.0
        rows/people.py Budgets._charged: self._square - used < _NOTHING_LEFT * self._square
        rows/people.py Budgets._charged: count + 1 >= self._unit.max_rows
        rows/people.py commonly_weighted: norm > most
        rows/people.py _fitting: root >= _LEAST_ROOT
        rows/people.py _fitting: (total := cost(counts)) <= room
        rows/people.py _norm_of_sum: len(vectors) < d
        processors/base.py Algorithm.products: inputs == n
    """,
    "the other outcome refuses rows of another shape, or a block of the curator": """
        rows/admission.py Admission._shaped: rows.shape[1] != self.known_features()
        processors/base.py Processor.absorb_gram: is_plausible((high, low), count, self.n_features, constant)
    """,
}
#: The reason for each of these decisions, by name.
ONE_SIDED = {
    " ".join(line.split()): reason for reason, lines in _REASONS.items() for line in lines.strip().splitlines()
}


@dataclass(eq=False)
class _Recording(ast.NodeTransformer):
    """Adds records to comparisons and conditions."""

    file: str
    names: list = field(default_factory=list)
    found: list = field(default_factory=list)

    def _visit_scope(self, node):
        self.names.append(node.name)
        self.generic_visit(node)
        self.names.pop()
        return node

    visit_FunctionDef = visit_ClassDef = _visit_scope  # noqa: N815  # names of ast

    def _decision(self, node):
        number = len(DECISIONS) + len(self.found)
        self.found.append(f"{self.file} {'.'.join(self.names)}: {ast.unparse(node)}")
        return _call("_decided_", number, _Operands(number).visit(node), node)

    visit_Compare = _decision  # noqa: N815

    def _condition(self, node):
        """Record a condition, or each part of one."""
        if isinstance(node, ast.BoolOp):
            node.values = [self._condition(value) for value in node.values]
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            node.operand = self._condition(node.operand)
        elif not isinstance(node, ast.Constant):
            return self._decision(node)
        return node

    def _visit_test(self, node):
        # The test is removed while the rest is visited, so that its comparisons are recorded once.
        test, node.test = node.test, ast.Constant(True)
        self.generic_visit(node)
        node.test = self._condition(test)
        return node

    visit_If = visit_While = visit_IfExp = _visit_test  # noqa: N815


@dataclass(eq=False)
class _Operands(ast.NodeTransformer):
    """Adds records to the values that an expression reads."""

    number: int

    def _visit_value(self, node):
        return _call("_operand_", self.number, node, node) if isinstance(node.ctx, ast.Load) else node

    visit_Name = visit_Attribute = _visit_value  # noqa: N815

    def visit_Compare(self, node):
        # A comparison with None, or with a type, does not depend on a value.
        if not all(isinstance(one, (ast.Is, ast.IsNot)) for one in node.ops):
            self.generic_visit(node)
        return node

    def visit_Call(self, node):
        # Operands are the arguments, the object of a method and the result; not the name of a function.
        if not (isinstance(node.func, ast.Name) and node.func.id in _OF_TYPES):
            node.args = [self.visit(one) for one in node.args]
            for keyword in node.keywords:
                keyword.value = self.visit(keyword.value)
            func = node.func
            if isinstance(func, ast.Attribute) and getattr(func.value, "id", "") not in _MODULES:
                func.value = self.visit(func.value)
        return _call("_operand_", self.number, node, node)

    def _skip(self, node):
        return node  # variables of inner functions exist within them only

    visit_Lambda = visit_GeneratorExp = visit_ListComp = visit_SetComp = visit_DictComp = _skip  # noqa: N815


def _call(name, number, value, at):
    return ast.copy_location(ast.Call(ast.Name(name, ast.Load()), [ast.Constant(number), value], []), at)


#: Conditions and comparisons by number: file below the package, function and text. Names do not depend on line numbers.
DECISIONS = []


@cache
def _recorded():
    """Return the functions of the watched code, each with its code and with the code that records."""
    root, modules = Path(streampca.__file__).parent, []
    for name in WATCHED:
        package = importlib.import_module(name)
        modules += [name, *(m.name for m in pkgutil.iter_modules(getattr(package, "__path__", ()), f"{name}."))]
    recording = {}
    for name in modules:
        module = importlib.import_module(name)
        path = Path(str(module.__file__))
        adding = _Recording(path.relative_to(root).as_posix())
        tree = ast.fix_missing_locations(adding.visit(ast.parse(path.read_text(encoding="utf-8"))))
        DECISIONS.extend(adding.found)
        codes = [compile(tree, str(module.__file__), "exec", dont_inherit=True)]
        for code in codes:  # grows by the code of inner functions
            codes += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
            recording[code.co_filename, code.co_qualname, code.co_firstlineno] = code
        vars(module).update(_operand_=_operand, _decided_=_decided)
    gc.unfreeze()  # `gc.get_objects` does not return frozen objects, as those of `conftest`
    found = []
    for function in [one for one in gc.get_objects() if type(one) is FunctionType]:
        code = function.__code__
        other = recording.get((code.co_filename, code.co_qualname, code.co_firstlineno))
        if other is not None and other.co_freevars == code.co_freevars:
            found.append((function, code, other))
    return tuple(found)


@dataclass(eq=False)
class Decisions:
    """The decisions of the runs of one case."""

    # Numbers of decisions whose operands depend on rows, and outcomes by number: 1 for no, 2 for yes, 3 for both.
    varied: set = field(default_factory=set)
    sides: defaultdict = field(default_factory=lambda: defaultdict(int))
    # Operands and outcomes by decision: of the present run, and of the first run that reached it, by circumstances.
    values: defaultdict = field(default_factory=lambda: defaultdict(set))
    firsts: dict = field(default_factory=dict)
    runs: defaultdict = field(default_factory=lambda: defaultdict(int))
    most: float = 8  # runs with fresh keys that are recorded

    @contextmanager
    def watching(self):
        """Record the runs of cases in the ``with`` block."""
        original, _WATCHING[0] = runs.run, self

        def run(case, subject, rows, how, tape, *, look=True):
            rows = list(rows)
            chosen = tuple(i for i, row in enumerate(rows) if callable(row))  # pushed singly, which is public
            with self.watched(how, chosen, look, most=math.inf if look else self.most):
                return original(case, subject, rows, how, tape, look=look)

        try:
            with mock.patch.object(runs, "run", run), mock.patch.object(instrument, "run", run):
                yield self
        finally:
            _WATCHING[0] = None
            _put_code(recording=False)

    @contextmanager
    def watched(self, *circumstances, most=math.inf):
        """Record a run of a case, if fewer than ``most`` runs were like it."""
        self.values = values = defaultdict(set)
        self.runs[circumstances] += 1
        recorded = self.runs[circumstances] <= most
        _put_code(recording=recorded)
        try:
            yield
        finally:
            if recorded:
                # Runs of equal circumstances differ in rows and noise only. A decision that the first run did not reach
                # is compared with the first that did.
                known = self.firsts.setdefault(circumstances, {})
                self.varied |= {i for i, found in values.items() if known.setdefault(i, found) != found}

    def one_sided(self):
        """Return the decisions that depend on rows and had one outcome only, without a reason in `ONE_SIDED`."""
        found = (DECISIONS[i] for i in sorted(self.varied) if self.sides[i] in (1, 2))
        return [name for name in found if name not in ONE_SIDED]

    @property
    def both(self):
        return {DECISIONS[i] for i in self.varied if self.sides[i] == 3}


def audit_watched(case, *, seed, decisions=None, **given):
    """Audit a case as `audit_case`; decisions that had one outcome in all of its runs are a row "cannot see"."""
    decisions = decisions or Decisions()
    with decisions.watching():
        rows, subject = instrument.audit_case(case, seed=seed, **given), case.make()
        if any(row.verdict == "refuted" for row in rows):
            return rows
        # Where noise decides, the rarer outcome may need more runs with fresh keys than the audit of the noise did.
        decisions.most = math.inf
        for count in range(_PATIENCE):
            if not decisions.one_sided():
                return rows
            tape = runs.fresh_tape(seed, case.name, "decisions", count)
            runs.run(case, subject, case.both_rows(subject)[count % 2], case.feeds[0], tape, look=False)
    left = decisions.one_sided()
    return [*rows, Audit(case.name, "decisions", "cannot see", witness="; ".join(left))] if left else rows


# The code of functions is global, so what records it is, too.
_WATCHING = [None]
_RECORDING = [False]


def _put_code(*, recording):
    """Install the code that records, or the functions' own."""
    if _RECORDING[0] != recording:
        for function, code, other in _recorded():
            function.__code__ = other if recording else code
        _RECORDING[0] = recording


# Called a million times in an audit: a decision is settled when its operands differed and both outcomes occurred.
def _operand(number, value):
    """Record a value that a decision reads, and return it."""
    watching = _WATCHING[0]
    if watching is not None and number not in watching.varied:
        watching.values[number].add(_print(value))
    return value


def _decided(number, outcome):
    """Record an outcome, and return it; an array may have both."""
    watching = _WATCHING[0]
    if watching is None or (number in watching.varied and watching.sides[number] == 3):
        return outcome
    if isinstance(outcome, np.ndarray):
        mixed = outcome.dtype == np.bool_ and outcome.size > 0
        side = 2 * bool(outcome.any()) | (not outcome.all()) if mixed else 0
    else:
        side = 2 if outcome else 1
    watching.sides[number] |= side
    if number not in watching.varied:
        watching.values[number].add(("outcome", side))
    return outcome


def _print(value):
    """Return a hashable object that is equal for equal values."""
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return value
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        if array.nbytes > _MOST or array.dtype == object:
            return array.shape
        return array.shape, blake2b(array.tobytes(), digest_size=8).digest()
    if isinstance(value, tuple):
        return tuple(_print(one) for one in value[:8])
    return type(value).__name__
