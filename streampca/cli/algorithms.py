"""Algorithms and mechanisms made of options, and the command that makes one."""

from __future__ import annotations

import inspect
import json
import shlex
from collections.abc import Mapping
from typing import Any, cast

import streampca
from streampca.cli.options import yes_or_no
from streampca.errors import BadParameterError
from streampca.matrix_factorization.noises import NOISES
from streampca.mechanisms.base import Mechanism
from streampca.processors.base import Algorithm
from streampca.processors.solvers import SOLVERS
from streampca.processors.tumbling import Tumbling

#: Short names of algorithms. Every public algorithm may also be given by its own name.
NAMES = {
    "fpl": "PrivateFPL",
    "window": "SlidingWindowPCA",
    "oja": "Oja",
    "private-oja": "PrivateOja",
    "dp-pca": "DPPCA",
    "tumbling": "Tumbling",
}
#: Short names of mechanisms: what makes one release. Every public mechanism may also be given by its own name.
MECHANISMS = {
    "gaussian": "GaussianCovariance",
    "adaptive": "AdaptiveCovariance",
    "adaptive-laplace": "AdaptiveLaplaceCovariance",
    "matrix-laplace": "MatrixLaplaceCovariance",
    "exact-subspace": "ExactSubspace",
}
_RELEASE_EVERY = 100
#: Parameters that are strategies, and the strings that are short for these.
_STRATEGIES: dict[str, Mapping[str, type]] = {"noise": NOISES, "solver": SOLVERS}
#: Parameters that have options of their own; others are given by ``--set``.
_OPTIONS = ("n_components", "epsilon", "delta", "adjacency", "horizon", "window", "release_every")


def make_algorithm(name: str, common: Mapping[str, Any], extra: Mapping[str, str] | None = None) -> Algorithm:
    """Make an algorithm of command-line options.

    Parameters
    ----------
    name : key of `NAMES`, or name of a public algorithm.
    common : options that many algorithms share; None stands for not given. Without ``release_every``, it is 100
        where the algorithm would release after every row.
    extra : texts of further parameters: JSON values or bare words; yes, no, on, off, true or false in any case for
        those that are on or off. ``mechanism``, of `Tumbling`, is a key of `MECHANISMS` or the name of a public
        mechanism, which gets what `Tumbling` does not take.

    Raises
    ------
    BadParameterError
        If there is no such algorithm, or it does not take an option given, or needs one not given.
    """
    kind = _public("--algorithm", name, NAMES, Algorithm)
    takes, given = inspect.signature(kind).parameters, _given(common, extra)
    if "mechanism" in takes and "mechanism" in given:
        own = {key: given.pop(key) for key in list(given) if key not in takes}
        given["mechanism"] = _made(_public("--set mechanism", given["mechanism"], MECHANISMS, Mechanism), own)
    elif "release_every" in takes and takes["release_every"].default == 1:
        given.setdefault("release_every", _RELEASE_EVERY)
    return cast(Algorithm, _made(kind, given))


def make_mechanism(name: str, common: Mapping[str, Any], extra: Mapping[str, str] | None = None) -> Mechanism:
    """Make a mechanism of command-line options; parameters and errors as for `make_algorithm`."""
    return cast(Mechanism, _made(_public("--mechanism", name, MECHANISMS, Mechanism), _given(common, extra)))


def command_of(made: Algorithm | Mechanism, *, row_norm: float = 1.0) -> str:
    """Return the command that does what an algorithm or a mechanism does to the rows of a FILE."""
    settings = _settings(made)
    if isinstance(made, Mechanism):
        words = ["streampca", "release", "FILE", "--mechanism", _short(made, MECHANISMS)]
    else:
        words = ["streampca", "run", "FILE", "--algorithm", _short(made, NAMES)]
        if isinstance(made, Tumbling):
            words += ["--set", f"mechanism={_short(settings.pop('mechanism'), MECHANISMS)}"]
            settings |= _settings(made.mechanism)
    inner = made.mechanism if isinstance(made, Tumbling) else made
    if settings.pop("center", None) is None and "center" in inspect.signature(type(inner)).parameters:
        words.append("--no-center")
    for name, value in settings.items():
        words += [_flag(name), str(value)] if name in _OPTIONS else ["--set", f"{name}={json.dumps(value)}"]
    return shlex.join([*words, "--row-norm", f"{row_norm:g}"])


def _settings(made: object) -> dict[str, Any]:
    """The parameters that are not at their defaults, and release_every, whose default is another here."""
    defaults = {name: taken.default for name, taken in inspect.signature(type(made)).parameters.items()}
    defaults["release_every"] = None
    values = {name: getattr(made, name, None) for name in defaults}
    settings = {name: value for name, value in values.items() if value is not None and value != defaults[name]}
    for name, kinds in _STRATEGIES.items():
        if name in settings:
            strategy = settings[name]
            settings[name] = next(short for short, kind in kinds.items() if kind is type(strategy))
            settings |= {f"{name}.{key}": value for key, value in _settings(strategy).items()}
    return settings


def _short(made: object, names: Mapping[str, str]) -> str:
    full = type(made).__name__
    return next((short for short, name in names.items() if name == full), full)


def _public(flag: str, name: str, names: Mapping[str, str], base: type) -> type:
    """The public class of a short or full name; those of `papers` have their full names only."""
    full = names.get(name, name)
    kind = getattr(streampca.papers if full in streampca.papers.__all__ else streampca, full, None)
    if not (isinstance(kind, type) and issubclass(kind, base)):
        raise BadParameterError(f"{flag} {name}: there is none of that name; use {', '.join(names)}")
    return kind


def _given(common: Mapping[str, Any], extra: Mapping[str, str] | None) -> dict[str, Any]:
    """The parameters that are given."""
    given = {key: value for key, value in common.items() if value is not None}
    for key, text in (extra or {}).items():
        try:
            given[key] = json.loads(text)
        except ValueError:
            given[key] = text
    return given


def _made(kind: type, given: dict[str, Any]) -> Any:
    takes = inspect.signature(kind).parameters
    for name, kinds in _STRATEGIES.items():
        # Options of a strategy: solver=smoothed and solver.drift=0.1.
        own = {key: given.pop(key) for key in list(given) if key.startswith(f"{name}.")}
        if own and given.get(name) not in kinds:
            raise BadParameterError(f"--set {next(iter(own))}: give {name} too: {', '.join(kinds)}")
        if own:
            given[name] = _made(kinds[given[name]], {key.partition(".")[2]: value for key, value in own.items()})
    for key, value in given.items():
        if key not in takes:
            raise BadParameterError(
                f"{_flag(key)}: {kind.__name__} takes no such parameter; it takes {', '.join(takes)}"
            )
        if isinstance(takes[key].default, bool):
            given[key] = yes_or_no(str(value), f"--set {key}")
    missing = [_flag(key) for key, taken in takes.items() if taken.default is taken.empty and key not in given]
    if missing:
        raise BadParameterError(f"{kind.__name__} needs {', '.join(missing)}")
    return kind(**given)


def _flag(name: str) -> str:
    """The option of a parameter."""
    if name not in _OPTIONS:
        return f"--set {name}"
    return "-k" if name == "n_components" else "--" + name.replace("_", "-")
