"""Rows from the messages of a Kafka topic (the extra ``kafka``), one row a message.

*Order.* Partitions take turns, in ascending order: in its turn, a partition gives its next ``turn`` messages, in the
order of their offsets, or those that are left. Without ``follow``, reading ends at the messages that there were
when it began, so the rows are a function of the topic alone. With ``follow``, a partition that has no message at its
turn is passed over, so the order depends on when messages come too; rows that are durable keep theirs.

*Once.* Where a run stands (the next offset of every partition, and whose turn it is) is kept in its store, in the
transaction of its rows. It assigns all partitions to itself instead of subscribing: the consumer group is told
what is durable, for those who watch its lag, and decides nothing. A rebalance moves no partition away. Messages
that were deleted before they were read are an error.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from io import BytesIO
from typing import Any, Literal

import msgspec
import numpy as np

from streampca.errors import BadParameterError, SourceError
from streampca.linalg.counts import check_count
from streampca.rows.protocol import Part, PositionedBlock
from streampca.sources.base import REMEDY, BoundsLike, PositionedRows, numbers, repeated, source_bounds
from streampca.sources.ndjson_rows import check_levels
from streampca.sources.reading import Reading

logger = logging.getLogger("streampca.kafka")
logger.addHandler(logging.NullHandler())  # silent unless the host wants its messages

#: What a message holds: its name, or a function of its bytes that returns a mapping or a sequence of numbers.
Value = Literal["json", "avro", "block"] | Callable[[bytes], Any]
_HELD = 4096  # messages of a partition that are read ahead; then it is paused
_POLL = 0.5  # seconds that a call waits for messages
_PATIENCE = 30.0  # seconds that a broker may take to answer
_ANSWER = 5.0  # those of a look
_LOOK = 30.0  # seconds between two looks for new partitions of a topic that is followed


class KafkaRows(PositionedRows):
    """Rows of numbers from the messages of a Kafka topic, exactly once with a durable stream; also called `from_kafka`.

    Parameters
    ----------
    topic : its name, by which a run knows it again.
    group : consumer group that is told which offsets are durable. It decides nothing.
    servers : addresses of brokers, ``host:port`` with commas between.
    features : names of the numbers of a message, in the order wanted.
    value : ``"json"`` (an object, or an array in the order of the features; of at most 200 levels), ``"avro"``, or a
        function of the bytes of a message that returns a mapping or a sequence of numbers; what it raises makes the
        message a bad one.
        ``"block"``: sums of rows, made and collected by `streampca.readers`.
    schema : for Avro: the schema of all messages; or a mapping from number to schema for messages with the header
        of a schema registry.
    bounds : public bounds of the features, as in `from_csv`.
    turn : messages that a partition gives before it is the next one's turn. It decides the order of rows: leave it
        as it is when a run is resumed.
    config : further settings of librdkafka, such as those of TLS.
    reading : ``on_bad_row`` and ``follow`` of `Reading`. A message is bad if it cannot be read, or has none but missing
        values. ``follow`` waits for more messages at the end, for new partitions, and for brokers that are down.

    Raises
    ------
    BadParameterError
        If a parameter is outside its domain.
    SourceError
        While reading: if confluent-kafka is missing, no broker answers (with ``follow``: when it begins), there is no
        such topic, a message is bad, or messages after the position were deleted before they were read.
    """

    def __init__(
        self,
        topic: str,
        group: str,
        *,
        servers: str,
        features: Sequence[str],
        value: Value = "json",
        schema: Any = None,
        bounds: BoundsLike = None,
        turn: int = 1000,
        config: Mapping[str, Any] | None = None,
        **reading: Any,
    ) -> None:
        options = Reading(**reading).only("a topic", "on_bad_row", "follow")
        check_count("turn", turn)
        if isinstance(features, str) or not features or repeated(features):
            raise BadParameterError(f"features={features!r} must be distinct names: a topic has no header line")
        if "@" in servers:
            raise BadParameterError(
                "servers= holds a user or password; put them into config=: sasl.username, sasl.password"
            )
        self.features, self.name = tuple(features), f"kafka topic {topic}{' of blocks' if value == 'block' else ''}"
        self.bounds = source_bounds(bounds, self.features)
        self._read = reader(value, schema)
        self._topic, self._turn, self._follow, self._zero = topic, turn, options.follow, options.is_absorbing
        self._config = {
            "bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False,
            "auto.offset.reset": "error", "enable.partition.eof": True, "isolation.level": "read_committed",
            "logger": logger, **(config or {}),
        }  # fmt: skip
        self._consumer: Any = None

    def blocks_from(self, at: Any = None) -> Iterator[PositionedBlock]:
        """The rows after a position, or from the earliest messages that there are."""
        for messages, after in self._turns(at):
            yield from self._blocks(messages, after)

    def parts_from(self, at: Any = None) -> Iterator[Part]:
        """What messages hold, as bytes."""
        for messages, after in self._turns(at):
            yield Part([message.value() or b"" for message in messages], after, partial(_place, messages))

    def _turns(self, at: Any) -> Iterator[tuple[list[Any], Callable[[int], Any]]]:
        try:
            from confluent_kafka import Consumer, KafkaException
        except ImportError as error:
            raise SourceError("Kafka needs confluent-kafka; install it with pip install 'streampca[kafka]'") from error
        try:
            self._consumer = consumer = Consumer(self._config)
        except KafkaException as error:
            raise SourceError(
                f"Kafka topic {self._topic}: {error.args[0].str()}; check config=, or the address"
            ) from error
        try:
            yield from self._parts(_Partitions(consumer, self._topic, at, most=max(_HELD, 2 * self._turn)), at)
        finally:
            self._consumer = None
            consumer.close()

    def durable(self, at: Any) -> None:
        """Tell the consumer group. It may be busy with other members: nothing depends on it."""
        from confluent_kafka import KafkaException, TopicPartition

        if self._consumer is not None:
            try:
                self._consumer.commit(
                    offsets=[TopicPartition(self._topic, p, next_) for p, next_ in enumerate(at["offsets"])],
                    asynchronous=True,
                )
            except KafkaException as problem:
                logger.debug("group not told: topic=%s problem=%s", self._topic, problem)

    def _parts(self, partitions: _Partitions, at: Any) -> Iterator[tuple[list[Any], Callable[[int], Any]]]:
        ends = None if self._follow else partitions.ends
        turn, left = (0, self._turn) if at is None else at["turn"]
        quiet = 0  # partitions in a row that had nothing
        while True:
            if not left:
                turn, left = turn + 1, self._turn
            turn %= len(partitions.offsets)
            if not turn and self._follow:
                partitions.look()
            messages = partitions.take(turn, left, None if ends is None else ends[turn])
            if messages:
                nexts = [message.offset() + 1 for message in messages]
                yield messages, partial(_after, tuple(partitions.offsets), turn, left, nexts)
                partitions.offsets[turn] = nexts[-1]
            quiet, left = 0 if messages else quiet + 1, 0
            if quiet == len(partitions.offsets):
                if ends is not None:
                    return
                partitions.fetch()
                quiet = 0

    def _blocks(self, messages: Sequence[Any], after: Callable[[int], Any]) -> Iterator[PositionedBlock]:
        """The rows of some messages of one partition; those before a bad one, and then an error."""
        rows = np.full((len(messages), len(self.features)), np.nan)
        for i, message in enumerate(messages):
            try:
                rows[i] = numbers(self._read(message.value()), self.features)
            except Exception as problem:
                if not self._zero:
                    if i:
                        yield PositionedBlock(rows[:i], after)
                    raise SourceError(
                        f"{self.name}, {_place(messages, i)}: no row of numbers "
                        f"({type(problem).__name__}: {problem}); {REMEDY}"
                    ) from problem
        yield PositionedBlock(rows, after)


def _place(messages: Sequence[Any], i: int) -> str:
    return f"partition {messages[i].partition()}, offset {messages[i].offset()}"


def _after(offsets: Sequence[int], turn: int, left: int, nexts: Sequence[int], m: int) -> dict[str, Any]:
    """The position after the first m messages of a turn."""
    return {"offsets": [*offsets[:turn], nexts[m - 1], *offsets[turn + 1 :]], "turn": [turn, left - m]}


def reader(value: Value, schema: Any = None) -> Callable[[bytes], Any]:
    """The function that reads a message."""
    if callable(value):
        return value

    def json(data: bytes) -> Any:
        check_levels(data)
        return msgspec.json.decode(data)

    def block(data: bytes) -> Any:
        raise BadParameterError("messages of blocks are no rows; streampca.readers.collect takes them")

    if value in ("json", "block"):
        return json if value == "json" else block
    if value != "avro":
        raise BadParameterError(
            f"value={value!r} must be 'json', 'avro', 'block' or a function of the bytes of a message"
        )
    if schema is None:
        raise BadParameterError("value='avro' needs schema=: an Avro schema, or {id: schema} for framed messages")
    try:
        from fastavro import parse_schema, schemaless_reader
    except ImportError as error:
        raise SourceError("Avro needs fastavro; install it with pip install 'streampca[kafka]'") from error
    framed = isinstance(schema, Mapping) and all(isinstance(key, int) for key in schema)
    schemas = {key: parse_schema(one) for key, one in schema.items()} if framed else {0: parse_schema(schema)}

    def avro(data: bytes) -> Any:
        number = 0
        if framed:  # the header of a schema registry: 0, and the number of the schema in 4 bytes
            if data[0] != 0:
                raise ValueError("no schema number")
            number, data = int.from_bytes(data[1:5], "big"), data[5:]
        stream = BytesIO(data)
        found = schemaless_reader(stream, schemas[number], None)
        if stream.read(1):
            raise ValueError("bytes are left: another schema?")
        return found

    return avro


class _NoAnswerError(SourceError):
    """No broker answers."""


class _Partitions:
    """The messages of all partitions, each in order, some read ahead.

    Attributes
    ----------
    offsets : of the next message of each partition that was not given out.
    ends : after the last message of each when it was first looked at.
    """

    def __init__(self, consumer: Any, topic: str, at: Any, *, most: int) -> None:
        self._consumer, self._topic, self._most = consumer, topic, most
        self.offsets: list[int] = [] if at is None else list(at["offsets"])
        self.ends: list[int] = []
        self._held: list[deque[Any]] = []
        self._at_end: list[bool] = []
        self._paused: set[int] = set()
        self._looked = time.monotonic()
        self._assign(_PATIENCE)

    def take(self, p: int, most: int, end: int | None) -> list[Any]:
        """At most so many messages of a partition, before offset ``end``; fewer only where there are no more.

        Raises
        ------
        SourceError
            If there is an end, and no broker answers for a while.
        """
        held, heard = self._held[p], time.monotonic()
        while len(held) < most and not self._at_end[p] and not (held and end and held[-1].offset() + 1 >= end):
            if end is not None and not held and self.offsets[p] >= end:
                return []
            if self.fetch():
                heard = time.monotonic()
            elif end is not None and time.monotonic() - heard > _PATIENCE:
                raise SourceError(
                    f"Kafka topic {self._topic}, partition {p}: no broker has answered for {_PATIENCE:.0f} s, offset "
                    f"{self.offsets[p]} is next of {end}; run again to go on there, or follow the topic to wait longer"
                )
        taken: list[Any] = []
        while held and len(taken) < most and (end is None or held[0].offset() < end):
            taken.append(held.popleft())
        if p in self._paused and len(held) < self._most // 2:
            self._consumer.resume([self._partition(p)])
            self._paused.discard(p)
        return taken

    def look(self) -> None:
        """Read new partitions too, if the last look was some time ago. Brokers that are down are waited for."""
        if time.monotonic() - self._looked > _LOOK:
            try:
                self._assign(_ANSWER)
            except _NoAnswerError as problem:
                logger.warning("%s; waiting", problem)
            self._looked = time.monotonic()

    def fetch(self) -> bool:
        """Wait a moment for messages; return whether a broker was heard."""
        heard, first = False, self._consumer.poll(_POLL)  # `consume` would wait until there are as many as asked for
        messages = [] if first is None else [first, *self._consumer.consume(1000, 0)]
        for message in messages:
            problem, p = message.error(), message.partition()
            if problem is None:
                heard = True
                self._held[p].append(message)
                self._at_end[p] = False
                if len(self._held[p]) >= self._most and p not in self._paused:
                    self._consumer.pause([self._partition(p)])
                    self._paused.add(p)
            elif problem.name() == "_PARTITION_EOF":
                heard = self._at_end[p] = True
            elif not problem.retriable() and problem.name() not in ("_TRANSPORT", "_ALL_BROKERS_DOWN"):
                raise SourceError(f"Kafka topic {self._topic}, partition {p}: {problem.str()}")
        return heard

    def _partition(self, p: int) -> Any:
        from confluent_kafka import TopicPartition

        return TopicPartition(self._topic, p)

    def _assign(self, patience: float) -> None:
        """Read all partitions, from where they stand; one that is new from its first message."""
        from confluent_kafka import KafkaException, TopicPartition

        try:
            found = self._consumer.list_topics(self._topic, timeout=patience).topics[self._topic]
        except KafkaException as error:
            raise _NoAnswerError(f"Kafka topic {self._topic}: {error.args[0].str()}; check the address") from error
        if found.error is not None or not found.partitions:
            raise SourceError(f"Kafka topic {self._topic}: {found.error or 'no partitions'}; check the name")
        new = range(len(self.ends), max(len(self.offsets), len(found.partitions)))
        # Before they are assigned: a broker answers one request after the other.
        marks = [(0, -1)] * len(new)
        for i, p in enumerate(new[: max(0, len(found.partitions) - len(self.ends))]):
            try:
                marks[i] = self._consumer.get_watermark_offsets(self._partition(p), timeout=patience)
            except KafkaException as error:
                raise _NoAnswerError(f"Kafka topic {self._topic}, partition {p}: {error.args[0].str()}") from error
        for p, (low, high) in zip(new, marks, strict=True):
            if p < len(self.offsets) and self.offsets[p] > high:
                raise SourceError(
                    f"Kafka topic {self._topic} ends before offset {self.offsets[p]} of partition {p}, where the run "
                    "stands: another topic has its name now; begin another run for it"
                )
            self.offsets += [low] if p == len(self.offsets) else []
            self.ends.append(high)
            self._held.append(deque())
            self._at_end.append(False)
        if not new:
            return
        reading = [held[-1].offset() + 1 if held else at for held, at in zip(self._held, self.offsets, strict=True)]
        self._paused.clear()
        self._consumer.assign([TopicPartition(self._topic, p, at) for p, at in enumerate(reading)])


from_kafka = KafkaRows
