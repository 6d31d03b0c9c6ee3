"""Public ranges as they are written on the command line."""

from __future__ import annotations

import json
from pathlib import Path

from streampca.errors import BadParameter

Ranges = tuple[float, float] | dict[str, tuple[float, float]]

_FORMS = 'expected lo:hi, name=lo:hi,..., or a JSON file {"name": [lo, hi], ...}'


def read_bounds(text: str) -> Ranges:
    """Parse ``lo:hi``, ``name=lo:hi,...`` or the name of a JSON file.

    Raises
    ------
    BadParameter
        If it is none of them.
    """
    if text.endswith(".json"):
        return _from_file(Path(text))
    if "=" in text:
        pairs = (part.partition("=") for part in text.split(","))
        return {name.strip(): _range(value, text) for name, _, value in pairs}
    return _range(text, text)


def _range(value: str, text: str) -> tuple[float, float]:
    lower, sign, upper = value.partition(":")
    try:
        if sign:
            return float(lower), float(upper)
    except ValueError:
        pass
    raise BadParameter(f"--bounds {text}: {value!r} is not a range; {_FORMS}")


def _from_file(path: Path) -> Ranges:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as problem:
        raise BadParameter(f"--bounds {path}: {problem}; {_FORMS}") from problem
    try:
        return {str(name): (float(lower), float(upper)) for name, (lower, upper) in data.items()}
    except (AttributeError, TypeError, ValueError) as problem:
        raise BadParameter(f"--bounds {path}: {problem}; {_FORMS}") from problem
