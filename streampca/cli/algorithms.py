"""Algorithms and mechanisms from options, and the command that creates one."""

from __future__ import annotations

import inspect
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import streampca
from streampca.cli.options import yes_or_no
from streampca.errors import BadParameterError, MissingParametersError, UsageError
from streampca.matrix_factorization.noises import NOISES
from streampca.mechanisms.base import Mechanism
from streampca.processors.base import Algorithm
from streampca.processors.solvers import SOLVERS
from streampca.processors.tumbling import Tumbling

#: Short names of algorithms. Every public algorithm may also be given by its own name.
NAMES = {
    "fpl": "PrivateFPL", "window": "SlidingWindowPCA", "oja": "Oja", "private-oja": "PrivateOja", "dp-pca": "DPPCA",
    "tumbling": "Tumbling", "sketch": "PrivateSketch",
}  # fmt: skip
#: Short names of mechanisms. Every public mechanism may also be given by its own name.
MECHANISMS = {
    "gaussian": "GaussianCovariance", "adaptive": "AdaptiveCovariance", "adaptive-laplace": "AdaptiveLaplaceCovariance",
    "matrix-laplace": "MatrixLaplaceCovariance", "exact-subspace": "ExactSubspace",
}  # fmt: skip
#: Parameters that are strategies, and the strings that are short for these.
_STRATEGIES: dict[str, Mapping[str, type]] = {"noise": NOISES, "solver": SOLVERS}
#: Parameters that only some have, and what these can do.
_ABLE = {"center": "center", "unit": "protect people"}
#: Parameters that have options; others are given by ``--set``.
COMMON = ("n_components", "epsilon", "delta", "adjacency", "horizon", "window", "release_every", "center")


def make_algorithm(
    name: str, common: Mapping[str, Any], extra: Mapping[str, str] | None = None, *, missing: Sequence[str] = (),
    count: Callable[[], int | None] | None = None,
) -> Algorithm:  # fmt: skip
    """Create an algorithm by its short or public name, from options and the texts of ``--set`` (``extra``)."""
    # The ``mechanism`` of `Tumbling` gets the parameters that `Tumbling` does not accept. ``missing`` are parameters of
    # the command that the error for missing ones names, too. ``count`` returns the number of rows, or None; it is
    # called for a horizon that is not given, after all else was checked.
    kind, given = _public("--algorithm", name, NAMES, Algorithm), _given(common, extra)
    accepted = inspect.signature(kind).parameters
    # Epsilon, delta and the like are those of the mechanism: blocks are disjoint, and each has the whole budget.
    mechanism, own, absent = None, dict[str, Any](), list[str]()
    if "mechanism" in accepted and "mechanism" in given:
        own = {key: given.pop(key) for key in list(given) if key not in accepted}
        mechanism = _public("--set mechanism", str(given["mechanism"]), MECHANISMS, Mechanism)
        absent = _missing(mechanism, own)
    absent += [*_missing(kind, given), *missing]
    # Blocks have the same noise for any horizon.
    counts = count is not None and "horizon" in accepted and "horizon" not in given and kind is not Tumbling
    if counts and "horizon" in absent:
        absent.remove("horizon")
    if absent:
        raise MissingParametersError(absent)
    if counts and count is not None:
        if accepted["horizon"].default is None:
            # A bad parameter is refused before a file is opened. What needs a horizon waits for the count.
            try:
                _create(kind, dict(given))
            except BadParameterError:
                raise
            except UsageError:
                pass
        if rows := count():
            given["horizon"] = rows
    if mechanism is not None:
        given["mechanism"] = _create(mechanism, own)
    return cast(Algorithm, _create(kind, given))


def make_mechanism(
    name: str, common: Mapping[str, Any], extra: Mapping[str, str] | None = None, *, missing: Sequence[str] = ()
) -> Mechanism:
    """Create a mechanism from command-line options; parameters and errors as for `make_algorithm`."""
    kind, given = _public("--mechanism", name, MECHANISMS, Mechanism), _given(common, extra)
    if absent := [*_missing(kind, given), *missing]:
        raise MissingParametersError(absent)
    return cast(Mechanism, _create(kind, given))


def _public(flag: str, name: str, names: Mapping[str, str], base: type) -> type:
    """The public class of a short or full name; those of `papers` have their full names only."""
    full = names.get(name, name)
    kind = getattr(streampca.papers if full in streampca.papers.__all__ else streampca, full, None)
    if not (isinstance(kind, type) and issubclass(kind, base)):
        raise UsageError(f"{flag} {name}: there is none of that name; use {', '.join(names)}")
    return kind


def _given(common: Mapping[str, Any], extra: Mapping[str, str] | None) -> dict[str, Any]:
    given = {key: value for key, value in common.items() if value is not None}
    for key, text in (extra or {}).items():
        try:
            given[key] = json.loads(f"0{text}" if text.startswith(".") else text)
        except ValueError:  # a bare word
            given[key] = text
    return given


def _missing(kind: type, given: Mapping[str, Any]) -> list[str]:
    """Return the required parameters that are not given; raise `UsageError` if it does not accept one that is."""
    accepted = inspect.signature(kind).parameters
    for key in given:
        if key in _ABLE and key not in accepted:
            named = {*NAMES.values(), *MECHANISMS.values()}
            those = sorted(one for one in named if key in inspect.signature(getattr(streampca, one)).parameters)
            able = _ABLE[key]
            raise UsageError(f"--{key}: {kind.__name__} cannot {able}; those that can are {', '.join(those)}")
        if key not in accepted and key.partition(".")[0] not in _STRATEGIES:
            known = ", ".join(accepted)
            raise UsageError(f"{_flag(key)}: {kind.__name__} takes no such parameter; it takes {known}")
    return [name for name, it in accepted.items() if it.default is it.empty and name not in given]


def _create(kind: type, given: dict[str, Any]) -> Any:
    accepted = inspect.signature(kind).parameters
    for name, kinds in _STRATEGIES.items():
        # Options of a strategy: solver=smoothed and solver.drift=0.1.
        own = {key: given.pop(key) for key in list(given) if key.startswith(f"{name}.")}
        if own and given.get(name) not in kinds:
            raise UsageError(f"--set {next(iter(own))}: give {name} too: {', '.join(kinds)}")
        if own:
            given[name] = _create(kinds[given[name]], {key.partition(".")[2]: value for key, value in own.items()})
    # All that are missing together: a message for each would take as many runs.
    if absent := _missing(kind, given):
        raise MissingParametersError(absent)
    for key, value in given.items():
        if isinstance(accepted[key].default, bool):
            given[key] = yes_or_no(str(value), f"--set {key}")
    return kind(**given)


def _flag(name: str) -> str:
    if name == "unit":
        return "--unit"
    if name not in COMMON:
        return f"--set {name}"
    return "-k" if name == "n_components" else "--" + name.replace("_", "-")


def command_of(algorithm: Algorithm | Mechanism, *, row_norm: float = 1.0) -> str:
    """Return the command that runs an algorithm or a mechanism on the rows of a FILE."""
    short = {full: short for short, full in (NAMES | MECHANISMS).items()}
    full, settings, inner = type(algorithm).__name__, _settings(algorithm), algorithm
    start = "pca FILE --mechanism" if isinstance(algorithm, Mechanism) else "run FILE --algorithm"
    words = ["streampca", *start.split(), short.get(full, full)]
    if isinstance(algorithm, Tumbling):
        inner = settings.pop("mechanism")
        full = type(inner).__name__
        words += ["--set", f"mechanism={short.get(full, full)}"]
        settings |= _settings(inner)
    if settings.pop("unit", None) is not None:
        words += ["--unit", "COLUMN"]
    # The default depends on another parameter.
    center = settings.pop("center", None)
    if center is not None and center == getattr(inner, "publish_regret", False):
        words.append("--center" if center else "--no-center")
    for name, value in settings.items():
        words += [_flag(name), str(value)] if name in COMMON else ["--set", f"{name}={json.dumps(value)}"]
    return shlex.join([*words, "--row-norm", f"{row_norm:g}"])


def _settings(configuration: object) -> dict[str, Any]:
    """Parameters that differ from their defaults."""
    # None stands for what an algorithm computes from its other parameters.
    settings = {}
    for name, parameter in inspect.signature(type(configuration)).parameters.items():
        value = getattr(configuration, name, None)
        if value is None or value == parameter.default:
            continue
        settings[name] = value
        if name in _STRATEGIES:
            settings[name] = next(short for short, kind in _STRATEGIES[name].items() if kind is type(value))
            settings |= {f"{name}.{key}": own for key, own in _settings(value).items()}
    return settings
