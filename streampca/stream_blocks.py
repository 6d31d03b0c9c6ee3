"""How a stream takes rows that other processes have summed."""

from __future__ import annotations

from abc import abstractmethod
from copy import deepcopy

from streampca.blocks import BlockGram, Leaves, gate_mark
from streampca.errors import BadParameter
from streampca.journal import Journal, journaled
from streampca.linalg.types import FloatArray
from streampca.release import Release
from streampca.stream_start import StreamStart


class BlockStep:
    """What a block brought about.

    Attributes
    ----------
    t : rows seen.
    count : rows of the block.
    reward : sum of the rewards of its rows, in units of row_norm**2; nan if the
        stream keeps no regret. Curator only: it is a function of raw rows.
    """

    def __init__(self, t: int, count: int, reward: float, release: Release | None, journal: Journal | None) -> None:
        self.t = t
        self.count = count
        self.reward = reward
        self._release = release
        self._journal = journal

    @property
    def release(self) -> Release | None:
        """The release that the block completed, or None. Publishable. In a durable stream, waits for its rows."""
        if self._journal is not None and self._release is not None:
            self._journal.wait_for(self.t)
        return self._release

    def __repr__(self) -> str:
        return f"BlockStep(t={self.t}, count={self.count})"


class TakesBlocks(StreamStart):
    """The side of a `streampca.Stream` that takes blocks."""

    def leaves(self) -> Leaves:
        """What other processes need to cut rows into blocks for this stream. Public settings only.

        Raises
        ------
        BadParameter
            If the features are not settled yet, or the processor needs rows.
        """
        self._check_blocks()
        if self._gate.n_features is None:
            raise BadParameter("blocks are made elsewhere, so the features must be known: give features= to the stream")
        gate = deepcopy(self._gate)
        gate.bad_rows = 0
        return Leaves(gate, getattr(self._processor, "release_every", 1), getattr(self._processor, "horizon", None))

    def push_block(self, block: BlockGram) -> BlockStep:
        """Feed rows that were admitted and summed elsewhere: the same release as from the rows, bit for bit.

        For processors that need no more than Gram matrices: `PrivateFPL`
        (without ``publish_regret``) and `PerturbedLeader`.

        Parameters
        ----------
        block : made by `leaves`, or by `BlockGram.of`. It must end where the next release is due, or before.

        Raises
        ------
        BadParameter
            If the processor needs rows, the block crosses a release or the end
            of a regret window, or it is of other features, of another row gate
            or from another place of the stream. Nothing has changed.
        BadRow
            If it is not the Gram matrix of so many rows of the unit ball. Nothing has changed.
        HorizonReached
            If the processor takes no more rows. Nothing has changed.
        """
        self._check_blocks()
        self._settle()
        if not isinstance(block, BlockGram):
            raise BadParameter(f"a {type(block).__name__} given; push_block takes a BlockGram, push_many takes rows")
        if block.first is not None and block.first != self.t + 1:
            raise BadParameter(
                f"a block from row {block.first} given, row {self.t + 1} is next: blocks come once each, and in order"
            )
        due = self._processor.rows_until_release
        if due and block.count > due:
            raise BadParameter(
                f"a block of {block.count} rows given, but a release is due after {due}; cut rows with stream.leaves()"
            )
        if self._log is not None:
            self._log.check_block(block.count)
        with self._first_row():
            if self._gate.n_features is None:
                self._gate.fix(None, block.n_features - int(self._gate.center))
            if block.n_features != self._gate.admitted_features:
                raise BadParameter(
                    f"a block of {block.n_features} features given, {self._gate.admitted_features} expected"
                )
            if block.gate and block.gate != gate_mark(self._gate):
                raise BadParameter(
                    "the block was admitted with other settings or by another version; use stream.leaves()"
                )
            self._pay(block.count)
            self._start()
        return self._absorb_block(block)

    def _check_blocks(self) -> None:
        if not self._processor.absorbs_grams or getattr(self._processor, "max_rows_per_user", None) is not None:
            raise BadParameter(
                f"{type(self._processor).__name__} with these parameters needs rows, not Gram matrices of blocks; "
                "use PrivateFPL without publish_regret= and max_rows_per_user=, or push rows"
            )

    @journaled
    def _absorb_block(self, block: BlockGram) -> BlockStep:
        """Play, score, absorb, release and log."""
        reward = float("nan")
        if self._log is not None:
            reward = block.rewards(self._basis())
        release = self._processor.absorb_gram(block.count, block.high, block.low)
        self._gate.bad_rows += block.bad
        if release is not None:
            release = self._publish(release)
        if self._log is not None:
            self._log.observe_block(block.count, block.high, block.low, reward)
        if self._journal is not None:
            self._journal.took_block(block, release)
        return BlockStep(self._processor.t, block.count, reward * self.row_norm**2, release, self._journal)

    @abstractmethod
    def _publish(self, release: Release) -> Release:
        """Make a release ready to leave."""

    @abstractmethod
    def _basis(self) -> FloatArray:
        """The basis on which the next row is scored."""
