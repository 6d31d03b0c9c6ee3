"""Weights of rows, with which all rows of a person together count no more than a budget of full rows.

The inputs of a mechanism are sums of ``y y^T`` over rows, for the admitted row y with the constant of
`linalg.centering` if there is one, and are released as ``B (C x + z)`` with ``B C`` the workload. Let ``P_ij >= 0`` be
the product of columns i and j of C, over the largest squared norm of a column (`MatrixFactorization.products`). A row
counts with a weight w in [0, 1]: ``sqrt(w) y`` is absorbed in place of y. For the rows of one person, with D_j the sum
of ``w y y^T`` over her rows in input j,

    Q = ||C D||_F**2 = sum over her rows i, l of  w_i w_l P_il (y_i . y_l)**2.

*Weight.* With X the sum of ``w_i P_i (y_i . y)**2`` over her earlier rows and Y = P ||y||**4, a row of weight w adds
``2 w X + w**2 Y`` to Q. With R the room ``(B u)**2 - Q``, its weight is 1 if ``2 X + Y <= R``, and otherwise ``R / (X +
sqrt(X**2 + Y R))``, the root of ``2 w X + w**2 Y = R``. All terms are non-negative, so Q never falls: a person whose
room is spent stays so, and her rows are forgotten.

*Theorem.* Let each row (content, name, place) be chosen by an adversary who sees all earlier releases, for two runs
that differ in that all rows of one name are absent from one of them. All releases together are mu-GDP for noise of
standard deviation ``B u / mu``, where u = 1, or 1 + c**2 with the constant c. If the rows are replaced by others of one
name, mu-GDP holds for ``sqrt(2) B u / mu``.

*Proof.* (1) The weights of a person are functions of her own rows and of the public P, so that all other weights agree
in both runs, given equal past releases. (2) Given these, step t is Gaussian around ``(C x)_t`` or ``(C x)_t + S_t``
with one covariance, ``S = C D``; z_t is fresh. (3) S_t is known before step t is drawn, and the sum of ``||S_t||**2``
is at most Q, hence at most ``(B u)**2``, because columns are counted to their end. (4) Run the logarithm of the
likelihood ratio as a Brownian motion whose clock advances by ``||S_t||**2 / sigma**2`` at step t, and on to mu**2 after
the last step. The advance is fixed before each step, so at mu**2 the ratio is that of N(0, 1) against N(mu, 1), and
stopping earlier is post-processing (Smith and Thakurta 2022; Koskela, Tobaben and Honkela 2023). (5) Replacement:
``||C (D - D')||**2 = Q + Q' - 2 <C D, C D'>``, and the last product is not negative, since P and ``(y . y')**2`` are
not. Centered rows keep the constant in y, so that their product is a square, too.

*Rewards.* With the reward r of each row released jointly at a weight of c = 1/2, ``0 <= r <= ||y||**2``, a pair of
rows costs ``(y_i . y_l)**2 + c**2 ||y_i||**2 ||y_l||**2``, and u**2 grows by c**2. About a mean, a row of weight w, y =
(a, s), has a reward of ``||a||**2`` at most and of ``-2 s ||a|| - s**2`` at least, for s = sqrt(w) and a the rest of
its entries, and rewards are in units of 3: their bound over 3 takes the place of ``||y||**2``. It scales with w. Under
replacement the product of rewards may be negative there, so that 2 takes the place of sqrt(2).

*Cells.* With the cells of each row counted jointly (`linalg.completion`), e_i = 1 for a cell that is present, a row of
weight w adds w e to their numbers. A pair of rows costs ``(y_i . y_l)**2 + (r / d) e_i . e_l``, which is not negative,
and u**2 grows by r: what a full row without a gap adds has the norm u. The weight of the cells is truncated by itself.

*Rounding.* Q is computed from the row that is absorbed, which is truncated toward zero to the lattice; while it exceeds
the budget, the row is shrunk again. The budget is lowered by 2**-30 for the rounding of Q.
"""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from streampca.linalg.centering import CONSTANT
from streampca.linalg.lattice import STEP
from streampca.linalg.svec import PRESENCE
from streampca.linalg.types import FloatArray, IntArray
from streampca.privacy.unit import Person
from streampca.rows.bounds import NO_VOTE, Bins

#: Bytes of the hash of a name.
ID_BYTES = 16
#: State of a person whose budget is spent. Otherwise it is Q, the inputs of her rows, and the rows as they count.
SPENT = b""
#: Part of the budget that counts as spent, and root of the least weight that is not 0.
_NOTHING_LEFT, _LEAST_ROOT = 1e-6, 2.0**-10
#: Bound on the error by which a reward exceeds the squared norm of its row, over the number of its entries. Rewards and
#: the entries of a basis V of k <= d columns are rounded to 2**-30, so that ``||V||**2 <= 1 + sqrt(d k) 2**-30``.
_REWARD_ERROR = 2.0**-29
_Q, _WORDS = struct.Struct("<d"), struct.Struct("=QQ")
_NO_CHANGES: Mapping[bytes, bytes] = MappingProxyType({})


class People(NamedTuple):
    """People of a stream after its rows: an immutable value. Curator only."""

    #: New states of people by id, which the latest commit made and `Budgets` may lack.
    changes: Mapping[bytes, bytes] = _NO_CHANGES
    number: int = 0  #: of people with a row that counts; of pairs of a person and a period, if these are the unit
    spent: int = 0  #: of those whose budget is spent
    full: int = 0  #: number of rows of weight 1
    shrunk: int = 0  #: number of rows of a smaller weight
    refused: int = 0  #: number of rows of weight 0
    weight: float = 0.0  #: sum of the weights
    past: int = 0  #: of `number`, those of closed periods, which have no state any more

    def closed(self) -> People:
        """Return the people after the end of a period of the unit: all budgets begin anew."""
        return self._replace(changes=_NO_CHANGES, past=self.number)


NOBODY = People()


class _Spent:
    """A set of ids in one block of memory, by open addressing: about 40 bytes an id."""

    def __init__(self) -> None:
        # An interrupt finds all ids: an assignment replaces their block, or an id in it; `count` may only be too large.
        self._table, self.count = array("Q", bytes(64 * ID_BYTES)), 0  # two numbers an id

    def __contains__(self, identity: bytes) -> bool:
        return _found(self._table, identity)[0]

    def add(self, identity: bytes) -> None:
        if identity in self:
            return
        if 3 * self.count >= len(self._table):
            larger = array("Q", bytes(len(self._table) * 3 // 4 * ID_BYTES))
            for one in self.ids():
                place = _found(larger, one)[1]
                larger[place : place + 2] = array("Q", one)
            self._table = larger
        self.count += 1
        place = _found(self._table, identity)[1]
        self._table[place : place + 2] = array("Q", identity)

    def ids(self) -> list[bytes]:
        """Return all ids."""
        empty, data = bytes(ID_BYTES), self._table.tobytes()
        parts = (data[place : place + ID_BYTES] for place in range(0, len(data), ID_BYTES))
        return [one for one in parts if one != empty]


def _found(table: array[int], identity: bytes) -> tuple[bool, int]:
    """Return whether an id is in a table, and its place, or the empty one at which it would be stored."""
    first, second = _WORDS.unpack(identity)
    place = first % (len(table) // 2) * 2
    while (one := table[place]) or table[place + 1]:
        if one == first and table[place + 1] == second:
            return True, place
        place = (place + 2) % len(table)
    return False, place


class Columns:
    """Products of the columns of a strategy with the latest of them, which ``products`` returns.

    They are public, and have the same bits by themselves and in the table that is made once many are asked for.
    """

    def __init__(self, products: Callable[[IntArray, int], FloatArray]) -> None:
        self._products = products
        self._latest: tuple[int, int, FloatArray | None] = 0, 0, None  # a column, how often it was asked for, the table

    def products(self, columns: IntArray, n: int) -> FloatArray:
        """Return the products of columns up to n with column n."""
        latest, count, table = self._latest
        if latest != n:
            count, table = 0, None
        if table is None and n <= 4 * count:
            table = self._products(np.arange(1, n + 1), n)
        self._latest = n, count + 1, table  # one assignment, for interrupts
        return self._products(columns, n) if table is None else table[columns - 1]


class Budgets:
    """States of the people of one stream. Curator only.

    The table follows the commits of the stream: states of people are in `People.changes` of the state that a commit
    assigns, and enter the table before the next row. An interrupt at any point leaves the people of the committed
    state, because entering the same states again changes nothing.

    Parameters
    ----------
    unit : the `Person`.
    key : secret bytes, under which names are hashed. Names are not kept.
    largest : u, the norm of what a full row adds, rewards apart.
    reward_weight : c, of rewards that are released jointly; 0 for none.
    products : function of the inputs of rows and of an input that returns P.
    center : whether rows have the constant of `linalg.centering`.
    cells : whether rows end with the cells that are present.
    """

    def __init__(
        self, unit: Person, key: bytes, largest: float, reward_weight: float,
        products: Callable[[IntArray, int], FloatArray], *, center: bool = False, cells: bool = False,
    ) -> None:  # fmt: skip
        self._unit, self._key, self._columns = unit, key, Columns(products)
        self._own = 0, 0.0  # the latest input, and the product of its column with itself
        self._square = unit.budget**2 * (largest**2 + reward_weight**2) * (1.0 - 2.0**-30)
        self._reward, self._center, self._cells = reward_weight**2, center, cells
        self._active: dict[bytes, bytes] = {}
        self._spent = _Spent()
        self._entered: Mapping[bytes, bytes] = _NO_CHANGES
        self._past = 0

    def id_of(self, name: bytes) -> bytes:
        """Return the id of a name. Names with one id, of probability 2**-128 for two, are one person."""
        return blake2b(name, digest_size=ID_BYTES, key=self._key).digest()

    def enter(self, people: People) -> None:
        """Enter the states that a commit made, and drop those of closed periods. Idempotent."""
        if people.past != self._past:
            self._active, self._spent, self._entered = {}, _Spent(), _NO_CHANGES
            self._past = people.past  # last, as below
        changes = people.changes
        if changes is self._entered:
            return
        for identity, state in changes.items():
            if state == SPENT:
                self._spent.add(identity)
                self._active.pop(identity, None)
            else:
                self._active[identity] = state
        self._entered = changes  # last: after an interrupt, all are entered again

    def states(self) -> dict[bytes, bytes]:
        """Return the state of each person by id, for `enter`. As secret as the rows."""
        return {**self._active, **dict.fromkeys(self._spent.ids(), SPENT)}

    def weighted(
        self, people: People, rows: FloatArray, names: Sequence[bytes | None], inputs: Sequence[int]
    ) -> tuple[FloatArray, People]:
        """Return admitted rows as they count, and the people after them; ``people`` are those of the committed state.

        Zero vectors are absent rows. They cost nothing, and need no name.
        """
        self.enter(people)
        out, changes = rows.copy(), dict[bytes, bytes]()
        number, spent, full, shrunk, refused, total, past = people[1:]
        squares = np.einsum("ij,ij->i", rows, rows)
        for i in np.flatnonzero(squares).tolist():
            name = names[i]
            assert name is not None, "admission makes rows without a name absent"
            identity = self.id_of(name)
            state = changes[identity] if identity in changes else self._active.get(identity)
            if state == SPENT or (state is None and identity in self._spent):
                out[i], refused = 0.0, refused + 1
                continue
            row, root, after = self._charged(state, rows[i], inputs[i])
            if after is not None:
                number, spent = number + (state is None), spent + (after == SPENT)
                changes[identity] = after
            total += root * root
            if root == 1.0:
                full += 1
            else:
                out[i], shrunk, refused = row, shrunk + (root > 0.0), refused + (root == 0.0)
        return out, People(MappingProxyType(changes), number, spent, full, shrunk, refused, total, past)

    def voted(self, people: People, bins: Bins, names: Sequence[bytes | None]) -> tuple[Bins, People]:
        """Return the votes of rows as they count, one a person, and the people after them, where voters are spent.

        ``people`` are those of the committed state (`streampca.rows.bounds.PrivateBounds`).
        """
        self.enter(people)
        bins, changes = bins.copy(), dict[bytes, bytes]()
        for i in np.flatnonzero((bins != NO_VOTE).any(axis=1)).tolist():
            name = names[i]
            assert name is not None, "rows without a name have no vote"
            identity = self.id_of(name)
            if identity in changes or identity in self._spent:
                bins[i] = NO_VOTE
            else:
                changes[identity] = SPENT
        number, spent = people.number + len(changes), people.spent + len(changes)
        return bins, people._replace(changes=MappingProxyType(changes), number=number, spent=spent)

    def _largest_rewards(self, rows: FloatArray) -> FloatArray:
        """Return bounds on the rewards of rows, in units of `private_fpl.reward_scale`, with their rounding."""
        squares = np.vecdot(rows, rows)
        if self._center:
            own = rows[:, :-1]
            squares, roots = np.vecdot(own, own), rows[:, -1] / CONSTANT
            squares = np.maximum(squares, 2.0 * roots * np.sqrt(squares) + roots * roots) / 3.0
        bounds: FloatArray = squares + rows.shape[1] * _REWARD_ERROR
        return bounds

    def _charged(self, state: bytes | None, row: FloatArray, n: int) -> tuple[FloatArray, float, bytes | None]:
        """Return a row in input n as it counts, the root of its weight, and the state of its person after it."""
        used, count, middle, held = 0.0, 0, 0, None
        further = (row.size - int(self._center)) // 2 * int(self._cells)  # the last entries: weights of its cells
        d = row.size - further
        if state is not None:
            used = _Q.unpack_from(state)[0]
            count = (len(state) - _Q.size) // (8 + 4 * row.size)
            middle = _Q.size + 8 * count
            products = self._columns.products(np.frombuffer(state, np.int64, count, _Q.size), n)
            held = np.frombuffer(state, np.float32, -1, middle).astype(np.float64).reshape(count, row.size)
            vectors = held[:, :d]
            rewards = self._reward * self._largest_rewards(held) if self._reward else None
        if self._own[0] != n:
            self._own = n, float(self._columns.products(np.array([n]), n)[0])
        diagonal = self._own[1]

        def cost(one: FloatArray) -> tuple[float, float, float]:
            """Return X and Y of the row, and 2 X + Y."""
            # Products of two rows are exact: sums of multiples of 2**-40 below 2**13.
            own = one[:d] if further else one
            both, cross, reward = float(own.dot(own)) ** 2, 0.0, 0.0
            if further:
                both += PRESENCE / further * float(one[d:].dot(one[d:]))
            if self._reward:
                reward = float(self._largest_rewards(one[None])[0])
                both += self._reward * reward * reward
            if held is not None:
                pairs = vectors.dot(own)
                pairs *= pairs
                if further:
                    pairs += PRESENCE / further * held[:, d:].dot(one[d:])
                if rewards is not None:
                    pairs += rewards * reward
                cross = float(products.dot(pairs))
            both *= diagonal
            return cross, both, 2.0 * cross + both

        (cross, own, total), room, root, counts = cost(row), self._square - used, 1.0, row
        if total > room:
            weight = max(0.0, room) / (cross + math.sqrt(cross * cross + own * max(0.0, room)))
            root, counts, total = _fitting(row, math.sqrt(weight), lambda one: cost(one)[2], room, further)
            if total == 0.0:
                return counts, 0.0, state
        used += total
        if self._square - used < _NOTHING_LEFT * self._square or count + 1 >= self._unit.max_rows:
            return counts, root, SPENT
        before, rows = (b"", b"") if state is None else (state[_Q.size : middle], state[middle:])
        after = counts.astype(np.float32).tobytes()  # exact: multiples of 2**-20 up to 1
        return counts, root, b"".join([_Q.pack(used), before, n.to_bytes(8, "little"), rows, after])


def commonly_weighted(rows: FloatArray, names: Sequence[bytes | None], budget: float, further: int = 0) -> FloatArray:
    """Return the rows of one release as they count: those of each name with one weight.

    The norm of the sum of ``w y y^T`` over the rows of a name, which is what the release moves by, is at most
    ``budget``, in units of ``||y||**2``. The last ``further`` entries of a row are its cells, whose numbers move, too.
    """
    out, places = rows.copy(), dict[bytes, list[int]]()
    for i in np.flatnonzero(rows.any(axis=1)).tolist():
        name = names[i]
        assert name is not None, "admission makes rows without a name absent"
        places.setdefault(name, []).append(i)
    most = budget * (1.0 - 2.0**-30)
    for own in places.values():
        norm = _norm_of_sum(rows[own], further)
        if norm > most:
            root = math.sqrt(most / norm)
            out[own] = _fitting(rows[own], root, lambda part: _norm_of_sum(part, further), most, further)[1]
    return out


def _norm_of_sum(rows: FloatArray, further: int) -> float:
    """Return the Frobenius norm of the sum of ``y y^T`` over rows y, with that of their cells."""
    d = rows.shape[1] - further
    vectors, cells = rows[:, :d], rows[:, d:].sum(axis=0)
    small = vectors @ vectors.T if len(vectors) < d else vectors.T @ vectors
    norm = float(np.linalg.norm(small))
    return math.hypot(norm, math.sqrt(PRESENCE / further) * float(np.linalg.norm(cells))) if further else norm


def _fitting(
    rows: FloatArray, root: float, cost: Callable[[FloatArray], float], room: float, further: int
) -> tuple[float, FloatArray, float]:
    """Return the root of a weight, rows of this weight, and their cost, at most ``room``.

    The weight is lower than the one given while they cost more, and at last 0.
    """
    less = 2.0**-20
    while root >= _LEAST_ROOT:
        counts = _shrunk(rows, root, further)
        if (total := cost(counts)) <= room:
            return root, counts, total
        # Truncation shortens each entry, but may enlarge a product of rows with entries of both signs.
        root, less = root - less, 2.0 * less
    return 0.0, np.zeros_like(rows), 0.0


def _shrunk(rows: FloatArray, root: float, further: int = 0) -> FloatArray:
    """Return rows times the root of their weight, and their cells times the weight, truncated to the lattice."""
    counts: FloatArray = rows * (root / STEP)
    np.trunc(counts, counts)
    counts *= STEP
    counts += 0.0  # no -0.0
    if further:
        counts[..., -further:] = np.trunc(rows[..., -further:] * (root * root / STEP)) * STEP
    return counts
