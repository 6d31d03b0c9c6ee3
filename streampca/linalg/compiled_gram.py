"""Gram matrices of rows on the lattice, by numba (extra ``fast``), where the processor has 512-bit registers.

Sums of products on the lattice are exact in any order, so they have the bits of BLAS. The OpenBLAS inside numpy and
scipy takes kernels for 256 bits on processors that it does not know, and is then less than half as fast.
Import it through `streampca.linalg.fast` only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba import float64, types, void
from numba.core import cgutils
from numba.extending import intrinsic

from streampca.linalg.compiled import _IN2, compile_ahead
from streampca.linalg.types import FloatArray

#: Numbers in a register; features by features of a tile of sums, which takes 16 registers.
_LANES, _TALL, _WIDE = 8, 8, 16
#: Numbers of rows that are gone through at a time: they fit the cache.
_NUMBERS = 2**16
#: Features from which, and up to which, `add_rows` is faster than BLAS; none where registers are shorter.
TILED_FEATURES = range(_WIDE, 513 if binding.get_host_cpu_features().get("avx512f") else 0)


@intrinsic  # type: ignore[untyped-decorator]
def _tile(context: Any, rows: Any, start: Any, count: Any, i: Any, j: Any, out: Any) -> Any:
    """``rows[start:start + count, i:i + 8].T @ rows[start:start + count, j:j + 16]``, added up in registers."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        table, sums = (context.make_array(signature.args[at])(context, builder, arguments[at]) for at in (0, 5))
        width, word = cgutils.unpack_tuple(builder, table.shape)[1], ir.IntType(64)
        vector = ir.VectorType(ir.DoubleType(), _LANES)
        zeros, undefined = ir.Constant(vector, [0.0] * _LANES), ir.Constant(vector, ir.Undefined)
        copies = ir.Constant(ir.VectorType(ir.IntType(32), _LANES), [0] * _LANES)
        multiply_add = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(vector, [vector] * 3), f"llvm.fmuladd.v{_LANES}f64"
        )

        def part(base: Any, offset: Any) -> Any:
            return builder.bitcast(builder.gep(base, [offset]), vector.as_pointer())

        def places(first: Any, size: int, step: int) -> list[Any]:
            return [builder.add(first, word(x)) for x in range(0, size, step)]

        rows_before, columns = places(arguments[3], _TALL, 1), places(arguments[4], _WIDE, _LANES)
        begin = builder.gep(table.data, [builder.mul(arguments[1], width)])
        outside, loop, done = builder.block, builder.append_basic_block("rows"), builder.append_basic_block("done")
        builder.branch(loop)
        builder.position_at_end(loop)
        left, row = builder.phi(word), builder.phi(begin.type)
        totals = [builder.phi(vector) for _ in range(_TALL * len(columns))]
        right = [builder.load(part(row, column), align=8) for column in columns]
        after: list[Any] = []
        for place in rows_before:
            value = builder.load(builder.gep(row, [place]))
            value = builder.insert_element(undefined, value, ir.IntType(32)(0))
            value = builder.shuffle_vector(value, undefined, copies)
            after += [
                builder.call(multiply_add, [value, other, totals[len(after) + y]]) for y, other in enumerate(right)
            ]
        again = [builder.sub(left, word(1)), builder.gep(row, [width]), *after]
        entering = [arguments[2], begin, *[zeros] * len(totals)]
        for phi, first, following in zip([left, row, *totals], entering, again, strict=True):
            phi.add_incoming(first, outside)
            phi.add_incoming(following, loop)
        builder.cbranch(builder.icmp_signed(">", again[0], word(0)), loop, done)
        builder.position_at_end(done)
        for place, total in enumerate(after):
            builder.store(total, part(sums.data, word(place * _LANES)), align=8)
        return context.get_dummy_value()

    return types.void(rows, types.int64, types.int64, types.int64, types.int64, out), generate


@compile_ahead(void(_IN2, _IN2, float64[:, ::1]))
def add_rows(parts: FloatArray, rows: FloatArray, out: FloatArray) -> None:
    """`GramSum.add` of at most `lattice.EXACT_ROWS` rows of at least 16 features."""
    count, d = rows.shape
    square, tile = np.zeros((d, d)), np.empty((_TALL, _WIDE))
    step = max(1, _NUMBERS // d)
    for start in range(0, count, step):
        size = min(step, count - start)
        for left in range(0, d, _WIDE):
            j = min(left, d - _WIDE)  # the last tiles reach back over sums that are there already
            for top in range(0, min(left + _WIDE, d), _TALL):
                i = min(top, d - _TALL)
                _tile(rows, np.int64(start), np.int64(size), np.int64(i), np.int64(j), tile)
                for x in range(top, i + _TALL):
                    for y in range(left, j + _WIDE):
                        square[x, y] += tile[x - i, y - j]
    at = 0
    for i in range(d):
        for j in range(i, d):
            rest = parts[1, at] + square[i, j]
            whole = np.floor(rest)
            out[0, at], out[1, at] = parts[0, at] + whole, rest - whole
            at += 1
