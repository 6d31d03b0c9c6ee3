"""Inputs made from the structure of their format, with some of it wrong: what changes of bytes rarely reach.

Each function draws one input for the target of the same name in `targets`.
"""

import contextlib
import json
import struct
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

NUMBERS = (
    "0", "1", "-1", "2.5", "-0", "+1", ".5", "5.", "1e5", "1E-5", "1e308", "1e309", "-1e400", "5e-324", "1e-400",
    "0x10", "1_000", "1,5", "1 000", "inf", "-Infinity", "nan", "NaN", "NA", "", " ", "null", "None", "true", "FALSE",
    "1" * 400, "0." + "3" * 400, "2020-01-01", "2020-01-01T00:00:00.5+02:00", "9007199254740993", "1e", "--1", "1f",
    "\u0661\u0662", "1\u00a0", "x", "\u2212" "1", "'1'", "$1", "1%",
)  # fmt: skip
_NAMES = ("a", "b", "c", "t", "a b", "", " a", "\u00e9", "\U0001f600", "A", "1", "x" * 90, "a\tb", "\x1b[2J", "\u202e")
_ENDS = ("\n", "\r\n", "\r", "\n\n", " \n", "\0\n", "\u2028", "\x0b\n")


def csv(draw: Random) -> bytes:
    choice = draw.randrange(256)
    mark, end = draw.choice(",,,,;\t| :"), draw.choice(_ENDS[:3])
    wide = draw.choice((1, 2, 2, 3, 5, 40))
    odd = draw.choice((0.0, 0.02, 0.3))

    def cell(value: str) -> str:
        if draw.random() >= odd:
            return value
        forms = f'"{value}"', f'"{value}', f'{value}"', f'"{value}""{mark}{end}"', f" {value} ", draw.choice(NUMBERS)
        return draw.choice(forms)

    def number() -> str:
        return repr(draw.uniform(-9.0, 9.0)) if draw.random() >= odd else draw.choice(NUMBERS)

    lines = [[draw.choice(_NAMES) if draw.random() < odd else f"c{at}" for at in range(wide)]]
    for _ in range(draw.choice((0, 1, 3, 8, 40))):
        width = wide if draw.random() >= odd else draw.randrange(wide + 3)
        lines.append([number() for _ in range(width)])
    text = ""
    for line in lines:
        text += mark.join(map(cell, line)) + (end if draw.random() >= odd else draw.choice(_ENDS))
    if draw.random() < 0.1:
        text = text.rstrip("\r\n")
    codec = "utf-16" if choice & 224 == 224 else draw.choice(("utf-8", "utf-8", "utf-8-sig", "utf-16-le", "cp1252"))
    return bytes([choice]) + text.encode(codec, "replace")


def tree(draw: Random, depth: int = 0) -> Any:
    act = draw.randrange(12 if depth < 3 else 8)
    if act < 3:
        return draw.choice((0, 1, -1, 2.5, 1e308, -5e-324, 10**30, -(2**63), 2**64, float("nan"), float("inf")))
    if act < 5:
        return draw.choice(NUMBERS)
    if act < 8:
        return draw.choice((None, True, False, "", "\ud800", "x" * 200, "\0", "<f8"))
    if act < 10:
        return [tree(draw, depth + 1) for _ in range(draw.randrange(4))]
    return {draw.choice(_NAMES): tree(draw, depth + 1) for _ in range(draw.randrange(4))}


def changed(draw: Random, value: Any) -> Any:
    if isinstance(value, dict) and value and draw.random() < 0.85:
        name = draw.choice(list(value))
        act, made = draw.randrange(12), dict(value)
        if act == 0:
            del made[name]
        elif act == 1:
            made[draw.choice(_NAMES)] = made.pop(name)
        elif act == 2:
            made[name] = made[draw.choice(list(made))]
        elif act == 3:
            made[draw.choice(_NAMES)] = tree(draw)
        else:
            made[name] = changed(draw, value[name])
        return made
    if isinstance(value, (list, tuple)) and value and draw.random() < 0.85:
        at, act, items = draw.randrange(len(value)), draw.randrange(8), list(value)
        if act == 0:
            del items[at]
        elif act == 1:
            items.insert(at, items[draw.randrange(len(items))])
        elif act == 2:
            items[at:] = []
        else:
            items[at] = changed(draw, items[at])
        return items
    if isinstance(value, bool) or value is None or draw.random() < 0.3:
        return tree(draw)
    if isinstance(value, (int, float)):
        return draw.choice((value + 1, -value, value * 1e300, value / 1e300, 0, str(value), [value]))
    if isinstance(value, (str, bytes)) and value:
        at = draw.randrange(len(value))
        return draw.choice((value[:at], value[at:], value + value, value[:at] + value[at + 1 :], value[::-1]))
    return tree(draw)


def ndjson(draw: Random) -> bytes:
    odd = draw.choice((0.0, 0.05, 0.4))
    lines = []
    for _ in range(draw.choice((1, 2, 5, 20))):
        row: Any = {"a": draw.uniform(-9.0, 9.0), "b": draw.randrange(-9, 9)}
        if draw.random() < odd:
            row = changed(draw, row)
        line = json.dumps(row, ensure_ascii=draw.random() < 0.5)
        if draw.random() < odd:
            line = draw.choice((line[:-1], line + line, line + ",", "\ufeff" + line, line.replace('"', "'"), "",
                                line.replace(":", ":" * 2), '{"a": 1, "a": 2, "b": 3}', line.replace(", ", ", \t\r"),
                                line.replace("1", draw.choice(NUMBERS)), "[" * 2000, "// " + line))  # fmt: skip
        lines.append(line + draw.choice(("\n", "\n", "\r\n", "\n\n") if odd else ("\n",)))
    return bytes([draw.randrange(256)]) + "".join(lines).encode("utf-8", "surrogatepass")


def releases_of(files: list[bytes]) -> Callable[[Random], bytes]:
    whole = [[json.loads(line) for line in data.splitlines()] for data in files]

    def releases(draw: Random) -> bytes:
        lines = list(draw.choice(whole))
        for _ in range(draw.choice((0, 0, 1))):
            at = draw.randrange(len(lines))
            lines.insert(draw.randrange(len(lines)), lines[at] if draw.random() < 0.5 else lines.pop(at))
        for _ in range(draw.choice((1, 1, 2, 4))):
            at = draw.randrange(len(lines))
            lines[at] = changed(draw, lines[at])
        return "\n".join(json.dumps(line) for line in lines).encode("utf-8", "surrogatepass")

    return releases


def records_of(whole: list[bytes]) -> Callable[[Random], bytes]:
    trees: list[tuple[int, Any, bool]] = []
    for at, data in enumerate(whole):
        for decode in (msgspec.msgpack.decode, json.loads):
            with contextlib.suppress(msgspec.MsgspecError, ValueError):
                trees.append((at, decode(data), decode is not json.loads))
                break

    def records(draw: Random) -> bytes:
        at, value, packed = draw.choice(trees)
        for _ in range(draw.choice((1, 1, 2))):
            inner = isinstance(value, str) and value[:1] == "{"  # a configuration is text within JSON
            value = json.dumps(changed(draw, json.loads(value))) if inner else changed(draw, value)
        try:
            data = msgspec.msgpack.encode(value) if packed else json.dumps(value).encode()
        except (UnicodeEncodeError, OverflowError, TypeError):
            data = b"\xc0"
        return bytes([draw.choice([kind for kind in range(200, 256) if kind % len(whole) == at])]) + data

    return records


def changes(draw: Random) -> bytes:
    data = bytearray(draw.randbytes(2))
    for _ in range(draw.choice((0, 1, 1, 2, 6))):
        data += struct.pack("<BIB", draw.randrange(256), draw.randrange(2**32), draw.randrange(256))
    return bytes(data)


SHAPES: dict[str, Callable[[Random], bytes]] = {
    "csv": csv, "ndjson": ndjson, "parquet": changes,
    "store": changes, "ledger": changes,
}  # fmt: skip
