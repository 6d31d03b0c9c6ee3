"""Algorithms by the names that the command line knows them by."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping
from typing import Any

import streampca
from streampca.errors import BadParameter
from streampca.processors.base import Algorithm

#: Short names. Every public algorithm may also be given by its own name.
NAMES = {
    "fpl": "PrivateFPL",
    "perturbed-leader": "PerturbedLeader",
    "window": "SlidingWindowPCA",
    "oja": "Oja",
    "private-oja": "PrivateOja",
    "dp-pca": "DPPCA",
}
_RELEASE_EVERY = 100
_FLAGS = {"n_components": "-k"}


def make_algorithm(
    name: str, common: Mapping[str, Any], *, release_every: int | None = None, extra: Iterable[str] = ()
) -> Algorithm:
    """Build an algorithm from command-line options.

    Parameters
    ----------
    name : key of `NAMES`, or name of a public algorithm.
    common : options that many algorithms share; None stands for not given.
    release_every : rows between releases. Left out, 100 where the algorithm would release after every row.
    extra : further parameters, ``name=value`` with a JSON value or a bare word.

    Raises
    ------
    BadParameter
        If there is no such algorithm, or it does not take an option given, or
        needs one not given.
    """
    made = getattr(streampca, NAMES.get(name, name), None)
    if not (isinstance(made, type) and issubclass(made, Algorithm)):
        known = [short for short, full in NAMES.items() if hasattr(streampca, full)]
        raise BadParameter(f"--processor {name}: there is none of that name; use {', '.join(known)}")
    takes = inspect.signature(made).parameters
    given = {key: value for key, value in common.items() if value is not None}
    if release_every is not None:
        given["release_every"] = release_every
    elif "release_every" in takes and takes["release_every"].default == 1:
        given["release_every"] = _RELEASE_EVERY
    given |= dict(_setting(text) for text in extra)
    for key in given:
        if key not in takes:
            raise BadParameter(f"{_flag(key)}: {made.__name__} takes no such parameter; it takes {', '.join(takes)}")
    for key, parameter in takes.items():
        if parameter.default is inspect.Parameter.empty and key not in given:
            raise BadParameter(f"{made.__name__} needs {_flag(key)}")
    return made(**given)


def _flag(name: str) -> str:
    return _FLAGS.get(name, "--" + name.replace("_", "-"))


def _setting(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not (sign and name.isidentifier()):
        raise BadParameter(f"--set {text}: expected name=value")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
