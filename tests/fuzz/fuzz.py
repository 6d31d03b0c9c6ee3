"""Fuzz what takes rows: any input gives rows or an error of streampca, and no row is lost or doubled.

    pip install 'streampca[fuzz]'
    python tests/fuzz/fuzz.py csv -runs=1000000          # guided by coverage (atheris, libFuzzer options)
    python tests/fuzz/fuzz.py csv --blind 1000000        # mutations only, no atheris needed

Formats: `FORMATS`. One input takes at most 10 s, and all together no more than 200 MB.
"""

import random
import resource
import signal
import sys
import time
from pathlib import Path

FORMATS = ("csv", "ledger", "ndjson", "parquet", "records", "releases", "store")


def blind(name: str, count: int, seed: int = 0, seconds: float = float("inf")) -> int:
    """Try so many inputs, or for so many seconds of CPU time, and return how many.

    Half of them are seeds with random changes, half are drawn from the structure of the format.
    """
    from targets import SEEDS, SHAPES, TARGETS, prepare

    prepare(name)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    draw, target, pool = random.Random(seed), TARGETS[name], list(SEEDS[name])
    for data in pool:
        target(data)
    end, before = time.process_time() + seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for done in range(count):
        data = SHAPES[name](draw) if draw.random() < 0.5 else mutated(draw, pool)
        signal.alarm(10)
        try:
            target(data)
        except BaseException:
            print(f"{name}: input {data!r}", file=sys.stderr)
            raise
        finally:
            signal.alarm(0)
        if time.process_time() > end:
            count = done + 1
            break
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss <= before + 200 * 1024
    return count


_PIECES = (b"nan", b"inf", b"1e999", b"\0", b'"', b",", b"\n", b"\r", b"\xff\xfe", b"-", b"0" * 40, b"\xed\xa0\x80",
           b"x" * 100, b"\x1b[2J", b"[" * 1000, b"1e400", b"null", b"true")  # fmt: skip


def mutated(draw: random.Random, pool: list[bytes]) -> bytes:
    data = bytearray(draw.choice(pool)[: draw.choice((50, 200, 2000))])
    for _ in range(draw.choice((1, 1, 2, 4, 8))):
        at = draw.randrange(len(data) + 1)
        act = draw.randrange(5)
        if act == 0:
            data[at:at] = draw.randbytes(draw.randrange(1, 9))
        elif act == 1:
            del data[at : at + draw.randrange(1, 9)]
        elif act == 2 and data:
            data[at % len(data)] = draw.randrange(256)
        elif act == 3:
            data[at:at] = draw.choice(_PIECES)
        else:
            other = draw.choice(pool)[:200]
            data[at:at] = other[draw.randrange(len(other) + 1) :]
    return bytes(data)


def guided(name: str, options: list[str]) -> None:
    import tempfile

    import atheris

    # Admission compares arrays, and atheris keeps all that it sees compared.
    with atheris.instrument_imports(include=["streampca", "targets"], exclude=["streampca.rows.admission"]):
        from targets import SEEDS, TARGETS, prepare
    prepare(name)
    corpus = tempfile.mkdtemp()
    for i, data in enumerate(SEEDS[name]):
        Path(corpus, str(i)).write_bytes(data)
    atheris.Setup([sys.argv[0], corpus, *options], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in FORMATS:
        sys.exit(__doc__)
    if sys.argv[2:3] == ["--blind"]:
        began = time.perf_counter()
        tried = blind(sys.argv[1], int(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else 0)
        print(f"{sys.argv[1]}: {tried} inputs, {time.perf_counter() - began:.0f} s, nothing unexpected")
    else:
        guided(sys.argv[1], sys.argv[2:])
