"""Decisions that depend on rows: each must be taken both ways in the runs of a case.

While a case runs, every comparison and every condition in the code where exact and released values flow records its
operands and its outcome. A decision that reads other values in other runs of equal public circumstances depends on
rows, whether or not its outcome ever differs. One that had a single outcome in all runs of a case was not audited on
its other side: the case *cannot see* it.

Functions get other code for that time, compiled from their source with the records added.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib
import math
import pkgutil
from collections import defaultdict
from collections.abc import Hashable, Iterator
from functools import cache
from hashlib import blake2b
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import numpy as np

#: Packages and modules in which exact values, and what is released of them, decide.
WATCHED = (
    "streampca.rows.admission", "streampca.rows.bounds", "streampca.mechanisms", "streampca.papers",
    "streampca.privacy.outlet", "streampca.processors", "streampca.users",
)  # fmt: skip
#: Functions of types and lengths: their result is an operand, but not what they are given.
_OF_TYPES = ("callable", "hasattr", "is_frame", "isinstance", "len", "type")
#: Longer arrays are not compared.
_MOST = 1 << 15


class Decision(NamedTuple):
    """A condition or a comparison: the file below the package, the function, the line, and its text."""

    file: str
    function: str
    line: int
    text: str

    @property
    def name(self) -> str:
        """What identifies it while lines move."""
        return f"{self.file} {self.function}: {self.text}"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}, {self.function}: {self.text}"


_ELSEWHERE = "both outcomes occur in other cases: of bad rows, long rows, more rows, or votes for fixed bins"
_LARGE = "the other outcome takes sums of which runs of an audit are too short, and follows from released values"
_ARITHMETIC = "two ways to the same numbers, or a guard of a division"
_FOUND = "computed from released values alone"
_SEARCH = "a step of the exact search for spans, which tests compare with all spans"
_REFUSED = "the other outcome refuses rows of another shape, or a block that the curator made"
#: Decisions that may have one outcome in a case: by reason, then by file and function, their texts.
_REASONS: dict[str, dict[str, tuple[str, ...]]] = {
    _ELSEWHERE: {
        "rows/bounds.py PrivateBounds.found": ("column[occupied].sum() < _COVERED * len(bins)",),
        "rows/bounds.py _occupied": ("occupied.any()",),
        "rows/bounds.py _range_of": ("places.size",),
        "mechanisms/histogram.py GaussianHistograms.winners": (
            "table[np.arange(self.n_histograms), best] > -np.inf",
        ),
        "rows/admission.py Admission.all_values": ("np.vdot(chunk, chunk) < math.inf",),
        "rows/admission.py Admission.block": ("np.vdot(rows, rows) < math.inf", "bad.any()"),
        "rows/admission.py Admission.row": ("square <= 1.0", "float(np.vdot(row, row)) * self.factor < _SAFE"),
        "rows/admission.py Admission.values": ("np.vdot(values, values) < math.inf",),
        "mechanisms/exact_subspace.py ExactSubspace._best": ("noisy[0] > self.gap_threshold",),
        "mechanisms/histogram.py _above": ("counts > 0", "noisy > threshold + 0.5 * GRID"),
        "mechanisms/norm_maps.py NormEstimate.of": (
            "hidden > max(_ALARM * math.hypot(lost_std, norms.lost_energy_std(radius, norms_std)), noise_norm)",
            "radius == 1.0",
        ),
        "mechanisms/rational_span.py primitive": ("next((e for e in entries if e)) < 0",),
        "papers/subspace_perturbation.py SubspacePerturbation.projector_loses_less": (
            "sigma * n_rows <= self.n_components * self._gram_std",
        ),
        "papers/subspace_perturbation.py SubspacePerturbation.released": (
            "self.projector_loses_less(sigma, n_rows)", "bound > 2.0 * moves",
        ),
        "processors/private_oja.py clipped_gradients": ("norms.max() > bound",),
    },
    _LARGE: {
        "mechanisms/eigenvalue.py PrivateEigenvalue.decide": ("winner == _ZERO",),
        "papers/doubling.py Doubling.passed": ("found > self.opt_guess - self.quantile(leaf)",),
        "papers/doubling.py DoublingProcessor.next_epoch": ("doubling.passed(own, self.noise.n)",),
    },
    _ARITHMETIC: {
        "mechanisms/eigenvalue.py PrivateEigenvalue.cast": ("0.0 < value < math.inf",),
        "mechanisms/mean.py PrivateCenter.count": ("np.abs(bins) <= WINDOW",),
        "privacy/outlet.py NoiseSource.link": ("part.size",),
        "papers/subspace_perturbation.py projector_shift": ("bound > moves",),
        "processors/ascent.py orthonormalise": ("diagonal.max() <= _WELL_CONDITIONED * diagonal.min()",),
        "processors/dp_pca_deflation.py Ascent._share": ("across <= 0.0", "along <= 0.0"),
        "processors/dp_pca_deflation.py Ascent.moved": ("length > 0.0",),
    },
    _FOUND: {
        "processors/dp_pca_deflation.py Ascent.moved": ("overlap > 0.5",),
        "rows/bounds.py column_bounds": ("0.5 * upper - 0.5 * lower > 1e-300",),
        "rows/bounds.py _range_of": (
            "(places == LEVELS).all()", "0.25 * lower <= upper < 0.0", "0.0 < lower <= 0.25 * upper",
        ),
        "rows/bounds.py _edge": ("level == 0", "level > 0"),
        "mechanisms/covariance.py nearest_gram": ("shrunk.sum() > trace",),
        "mechanisms/norm_maps.py Model.choose": ("ratio < best_ratio",),
    },
    "a count in the curator's own report": {
        "rows/admission.py Counts.plain": ("self.votes",), "rows/admission.py Marks.counts": ("clamped.any()",),
    },
    _SEARCH: {
        "mechanisms/subspace_search.py _Search.__init__": (
            "residues.shape[1] <= rank + 1", "self.coords.any(axis=1).all()",
        ),
        "mechanisms/subspace_search.py _Search._directions": ("coords.shape[1] == 1", "coords.shape[1] == 2", "y == 0"),
        "mechanisms/subspace_search.py _Search._grown": ("key not in seen",),
        "mechanisms/subspace_search.py _Search.two_best": ("groups > scores[1]",),
    },
    _REFUSED: {
        "rows/admission.py Admission._shaped": ("rows.shape[1] != self._count()",),
        "processors/base.py Processor.absorb_gram": ("is_plausible((high, low), count, self.n_features, constant)",),
    },
}  # fmt: skip
#: The reason for each of them, by name.
ONE_SIDED: dict[str, str] = {
    f"{place}: {text}": reason
    for reason, places in _REASONS.items() for place, texts in places.items() for text in texts
}  # fmt: skip


# -- code that records --------------------------------------------------------------------------------------


class _Recording(ast.NodeTransformer):
    """Adds records to comparisons and conditions."""

    def __init__(self, file: str) -> None:
        self.file, self.names, self.found = file, list[str](), list[Decision]()

    def _named(self, node: Any) -> Any:
        self.names.append(node.name)
        self.generic_visit(node)
        self.names.pop()
        return node

    visit_FunctionDef = visit_ClassDef = _named  # noqa: N815  # names of ast

    def _decision(self, node: ast.expr, inner: ast.expr) -> ast.expr:
        number = len(DECISIONS) + len(self.found)
        self.found.append(Decision(self.file, ".".join(self.names), node.lineno, ast.unparse(node)))
        recorded = _Operands(number).visit(inner)
        return ast.copy_location(_call("_decided_", number, recorded), node)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """Record the operands and the outcome."""
        text = ast.copy_location(ast.Compare(node.left, node.ops, node.comparators), node)
        return self._decision(text, node)

    def _condition(self, node: ast.expr) -> ast.expr:
        """Record a condition, or each part of one."""
        if isinstance(node, ast.BoolOp):
            node.values = [self._condition(value) for value in node.values]
            return node
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            node.operand = self._condition(node.operand)
            return node
        if isinstance(node, ast.Compare):
            return self.visit_Compare(node)
        return node if isinstance(node, ast.Constant) else self._decision(node, node)

    def _tested(self, node: Any) -> Any:
        test = node.test
        node.test = ast.Constant(True)
        self.generic_visit(node)
        node.test = self._condition(test)
        return node

    visit_If = visit_While = visit_IfExp = _tested  # noqa: N815


class _Operands(ast.NodeTransformer):
    """Adds records to the values that an expression reads."""

    def __init__(self, number: int) -> None:
        self.number = number

    def _value(self, node: Any) -> Any:
        return ast.copy_location(_call("_operand_", self.number, node), node)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Record a variable."""
        made: ast.expr = self._value(node) if isinstance(node.ctx, ast.Load) else node
        return made

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """Record an attribute."""
        made: ast.expr = self._value(node) if isinstance(node.ctx, ast.Load) else node
        return made

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """Record the operands; what is compared to None, or to a type, decides by what it is, not by its value."""
        if all(isinstance(one, (ast.Is, ast.IsNot)) for one in node.ops):
            return node
        self.generic_visit(node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Record the arguments, the object of a method and the result; not the name of a function."""
        if isinstance(node.func, ast.Name) and node.func.id in _OF_TYPES:
            made: ast.expr = self._value(node)
            return made
        node.args = [self.visit(one) for one in node.args]
        for given in node.keywords:
            given.value = self.visit(given.value)
        func = node.func
        if isinstance(func, ast.Attribute) and getattr(func.value, "id", "") not in _MODULES:
            func.value = self.visit(func.value)
        made = self._value(node)
        return made

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        """Leave functions as they are."""
        return node

    visit_GeneratorExp = visit_ListComp = visit_SetComp = visit_DictComp = visit_Lambda  # type: ignore[assignment]  # noqa: N815


#: Names of modules, whose attributes are no operands.
_MODULES = ("np", "math", "scipy", "special", "stats")


def _call(name: str, number: int, value: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), [ast.Constant(number), value], [])


DECISIONS: list[Decision] = []


def _codes(code: CodeType) -> Iterator[CodeType]:
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            yield from _codes(inner)


@cache
def _recorded() -> tuple[tuple[FunctionType, CodeType, CodeType], ...]:
    """Functions of the watched code, with their own code and the code that records."""
    root = Path(__file__).parents[1]
    made: dict[tuple[str, str, int], CodeType] = {}
    for name in _module_names():
        module = importlib.import_module(name)
        path = Path(str(module.__file__))
        adding = _Recording(path.relative_to(root).as_posix())
        tree = ast.fix_missing_locations(adding.visit(ast.parse(path.read_text(encoding="utf-8"))))
        DECISIONS.extend(adding.found)
        for code in _codes(compile(tree, str(module.__file__), "exec", dont_inherit=True)):
            made[code.co_filename, code.co_qualname, code.co_firstlineno] = code
        vars(module).update(_operand_=_operand, _decided_=_decided)
    found = []
    for function in gc.get_objects():
        if type(function) is FunctionType:
            code = function.__code__
            other = made.get((code.co_filename, code.co_qualname, code.co_firstlineno))
            if other is not None and other.co_freevars == code.co_freevars:
                found.append((function, code, other))
    return tuple(found)


def _module_names() -> Iterator[str]:
    for name in WATCHED:
        yield name
        package = importlib.import_module(name)
        for found in pkgutil.iter_modules(getattr(package, "__path__", ()), f"{name}."):
            yield found.name


# -- what is recorded -----------------------------------------------------------------------------------------


class Decisions:
    """The decisions of the runs of one case.

    Attributes
    ----------
    varied : numbers of decisions whose operands depend on rows.
    sides : outcomes so far, by number: 1 for no, 2 for yes, 3 for both.
    """

    def __init__(self) -> None:
        self.varied = set[int]()
        self.sides: defaultdict[int, int] = defaultdict(int)
        self._values: dict[int, set[Hashable]] = {}
        self._before: dict[Hashable, dict[int, set[Hashable]]] = {}
        self._runs: defaultdict[Hashable, int] = defaultdict(int)

    @contextlib.contextmanager
    def watching(self) -> Iterator[Decisions]:
        """Record the runs (`watched`) in the ``with`` block."""
        before = _WATCHING[0]
        _WATCHING[0] = self
        try:
            yield self
        finally:
            _WATCHING[0] = before
            _put_code(recording=False)

    def begin(self, circumstances: Hashable, most: float) -> bool:
        """Begin a run; return whether it is recorded, as the first ``most`` of equal circumstances are."""
        self._values = {}
        self._runs[circumstances] += 1
        recorded = self._runs[circumstances] <= most
        _put_code(recording=recorded)
        return recorded

    def end(self, circumstances: Hashable) -> None:
        """End a run. Runs of equal circumstances differ in rows and noise only."""
        known = self._before.setdefault(circumstances, self._values)
        self.varied |= {i for i in known.keys() & self._values.keys() if known[i] != self._values[i]}

    def operand(self, number: int, value: Any) -> None:
        """Record a value that a decision reads."""
        if number not in self.varied:
            self._values.setdefault(number, set()).add(_print(value))

    def outcome(self, number: int, value: Any) -> None:
        """Record an outcome; an array may have both."""
        if isinstance(value, np.ndarray):
            side = 2 * bool(value.any()) | (not value.all()) if value.dtype == np.bool_ and value.size else 0
        else:
            side = 2 if value else 1
        self.sides[number] |= side
        if number not in self.varied:
            self._values.setdefault(number, set()).add(("outcome", side))

    @property
    def one_sided(self) -> list[Decision]:
        """Decisions that depend on rows and had one outcome only."""
        return [DECISIONS[i] for i in sorted(self.varied) if self.sides[i] in (1, 2)]

    @property
    def both(self) -> list[Decision]:
        """Decisions that depend on rows and had both outcomes."""
        return [DECISIONS[i] for i in sorted(self.varied) if self.sides[i] == 3]


#: What records; the code of functions has no other place to look.
_WATCHING: list[Decisions | None] = [None]


def _put_code(*, recording: bool) -> None:
    """Give functions the code that records, or their own."""
    if _RECORDING[0] != recording:
        for function, code, other in _recorded():
            function.__code__ = other if recording else code
        _RECORDING[0] = recording


_RECORDING = [False]


@contextlib.contextmanager
def watched(*circumstances: Hashable, most: float = math.inf) -> Iterator[None]:
    """Record a run of a case, if its decisions are watched, and if there were fewer than ``most`` like it."""
    watching = _WATCHING[0]
    recorded = watching is not None and watching.begin(circumstances, most)
    try:
        yield
    finally:
        if watching is not None and recorded:
            watching.end(circumstances)


def _operand(number: int, value: Any) -> Any:
    if (watching := _WATCHING[0]) is not None:
        watching.operand(number, value)
    return value


def _decided(number: int, outcome: Any) -> Any:
    if (watching := _WATCHING[0]) is not None:
        watching.outcome(number, outcome)
    return outcome


def _print(value: Any) -> Hashable:
    """Something that is equal for equal values."""
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
