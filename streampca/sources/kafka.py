"""Rows from the messages of a Kafka topic (the extra ``kafka``), one row a message."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec
import numpy as np

from streampca.errors import BadParameterError, SourceError, UsageError
from streampca.linalg.counts import check_count
from streampca.privacy.guarantee import check_number
from streampca.rows.admission import bad_values
from streampca.rows.names import repeated
from streampca.rows.protocol import Part, PositionedBlock, PositionedSource
from streampca.sources.base import BoundsLike, numbers, source_bounds
from streampca.sources.ndjson_rows import check_levels
from streampca.sources.reading import Reading

logger = logging.getLogger("streampca.kafka")
logger.addHandler(logging.NullHandler())  # silent unless the host wants its messages

#: Content of a message: its name, or a function from its bytes to a mapping or a sequence of numbers.
Value = Literal["json", "block"] | Callable[[bytes], Any]
_HELD = 4096  # messages of a partition that are read ahead; then it is paused
_POLL = 0.5  # seconds that a call waits for messages
_PATIENCE = 30.0  # seconds that a broker may take to answer


class KafkaRows(PositionedSource):
    """Rows of numbers from the messages of a Kafka topic, exactly once with a durable stream; also called `from_kafka`.

    Parameters
    ----------
    topic : name of the topic, which identifies the source to a run.
    group : consumer group that receives the durable offsets. It decides nothing.
    servers : addresses of brokers, ``host:port``, separated by commas.
    features : names of the numbers of a message, in the order wanted.
    value : ``"json"`` (an object, or an array in the order of the features; of at most 200 levels), or a function from
        the bytes of a message, such as Avro, to a mapping or a sequence of numbers, whose exceptions make the message
        a bad one. ``"block"``: sums of rows, created and collected by `streampca.readers`.
    bounds : public bounds of the features, as in `from_csv`.
    turn : messages that a partition gives in its turn. It decides the order of rows: do not change it for a resumed
        run.
    connect_timeout : seconds that brokers may take to answer at the start.
    config : further settings of librdkafka, such as those of TLS.
    reading : ``follow`` of `Reading`, which waits for more messages at the end, and for brokers that are down.

    Raises
    ------
    UsageError
        If a parameter is outside its domain.
    SourceError
        While reading: if confluent-kafka is missing, no broker answers (with ``follow``: at the start), the topic does
        not exist, or messages after the position were deleted before they were read.

    Notes
    -----
    *Order.* Partitions take turns, in ascending order. Without ``follow``, reading ends at the last messages at its
    start, so that the rows are a function of the topic only. With ``follow``, their order also depends on when messages
    arrive, as a partition without a message at its turn is skipped. Durable rows keep their order.
    """

    def __init__(
        self, topic: str, group: str, *, servers: str, features: Sequence[str], value: Value = "json",
        bounds: BoundsLike = None, turn: int = 1000, connect_timeout: float = 5.0,
        config: Mapping[str, Any] | None = None, **reading: Any,
    ) -> None:  # fmt: skip
        options = Reading(**reading).only("a topic", "follow", "beside")
        check_count("turn", turn)
        for name, text in {"topic": topic, "group": group, "servers": servers}.items():
            if not isinstance(text, str) or not text:  # librdkafka ends the process without a group
                raise BadParameterError(name, text, "text")
        names = tuple(features) if isinstance(features, Iterable) and not isinstance(features, str) else ()
        if not names or repeated(names) or not all(isinstance(name, str) for name in names):
            raise BadParameterError("features", features, "distinct names", advice="A topic has no header line")
        if "@" in servers:
            raise UsageError("servers= holds a user or password; pass sasl.username and sasl.password in config=")
        self.features, self.name = names, f"kafka topic {topic}{' of blocks' if value == 'block' else ''}"
        self.bounds = source_bounds(bounds, self.features)
        if not (callable(value) or value in ("json", "block")):
            raise BadParameterError("value", value, "'json', 'block' or a function of the bytes")
        self._value = value
        self._topic, self._turn, self._follow = topic, turn, options.follow
        check_number("connect_timeout", connect_timeout)
        self._connect = f"`{servers}`", float(connect_timeout)
        # An offset whose message was deleted is an error, because reading elsewhere would lose rows in silence.
        # Messages of aborted transactions are no rows.
        fixed = {"auto.offset.reset": "error", "enable.partition.eof": True, "isolation.level": "read_committed"}
        if not isinstance(config, Mapping | None) or not fixed.keys().isdisjoint(config or ()):
            expected = f"settings of librdkafka other than {', '.join(fixed)}, which decide what a row is"
            raise BadParameterError("config", ..., expected)  # may hold a password
        own = {"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False, "logger": logger}
        self._config = own | fixed | dict(config or {})
        self._consumer: Any = None

    def blocks_from(self, at: Any = None, beside: Sequence[str] = ()) -> Iterator[PositionedBlock]:
        if self._value == "block":
            raise UsageError("messages of blocks are no rows; pass the source to streampca.readers.collect")
        for part in self.parts_from(at):
            rows = np.empty((len(part.blocks), len(self.features)))
            cells: list[list[Any]] = [[None] * len(rows) for _ in beside]
            for i, data in enumerate(part.blocks):
                try:
                    if callable(self._value):
                        content = self._value(data)
                    else:
                        check_levels(data)
                        content = msgspec.json.decode(data)
                    # Before its numbers: whether they are bad must not decide to whom a row belongs. A message without
                    # names is one of nobody, hence a bad row.
                    for column, name in zip(cells, beside, strict=True):
                        column[i] = content.get(name) if isinstance(content, Mapping) else None
                    rows[i] = numbers(content, self.features)
                except Exception:  # the function of the caller may raise anything
                    rows[i] = bad_values("unreadable record", len(self.features))
            yield PositionedBlock(rows, part.after, cells)

    def durable(self, at: Any) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        if self._consumer is not None:
            try:
                offsets = [TopicPartition(self._topic, p, offset) for p, offset in enumerate(at["offsets"])]
                self._consumer.commit(offsets=offsets, asynchronous=True)
            except KafkaException as problem:  # the group may be busy; nothing depends on it
                logger.debug("offsets not committed: topic=%s problem=%s", self._topic, problem)

    def parts_from(self, at: Any = None) -> Iterator[Part]:
        """Yield the contents of the messages of each turn, as bytes; empty for a message without content."""
        try:
            from confluent_kafka import Consumer, KafkaException
        except ImportError as error:
            raise SourceError("Kafka", "needs confluent-kafka; pip install 'streampca[kafka]'") from error
        try:
            self._consumer = consumer = Consumer(self._config)
        except KafkaException as error:
            raise SourceError(self.name, f"{error.args[0].str()}; check config=, or the address") from error
        try:
            partitions = _Partitions(
                consumer, self._topic, at, most=max(_HELD, 2 * self._turn), connect=self._connect, idle=self._idle
            )
            offsets, ends = partitions.offsets, None if self._follow else partitions.ends
            turn, left = (0, self._turn) if at is None else at["turn"]
            empty = 0  # number of successive partitions without a message
            while True:
                if not left:
                    turn, left = turn + 1, self._turn
                turn %= len(offsets)
                messages = partitions.take(turn, left, None if ends is None else ends[turn])
                if messages:
                    # The position is a function of the number of messages used, which may end within the turn.
                    places = [message.offset() for message in messages]
                    yield Part(
                        [message.value() or b"" for message in messages],
                        lambda m, before=tuple(offsets), p=turn, left=left, places=places: {  # type: ignore[misc]
                            "offsets": [*before[:p], places[m - 1] + 1, *before[p + 1 :]], "turn": [p, left - m],
                        },
                        lambda i, p=turn, places=places: f"partition {p}, offset {places[i]}",  # type: ignore[misc]
                    )  # fmt: skip
                    offsets[turn] = places[-1] + 1
                empty, left = 0 if messages else empty + 1, 0
                if empty == len(offsets):
                    if ends is not None:
                        return
                    partitions.fetch()
                    empty = 0
        finally:
            self._consumer = None
            consumer.close()


class _Partitions:
    """Messages of all partitions, each in order, some read ahead.

    Each is read from its offset in the position ``at``; one that the position does not have, from its first message.
    """

    def __init__(
        self, consumer: Any, topic: str, at: Any, *, most: int, connect: tuple[str, float], idle: Callable[[], object]
    ) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        self._consumer, self._topic, self._most, self._idle = consumer, topic, most, idle
        # Of each partition: offset of the next message, and the offset after the last one at the first look.
        self.offsets: list[int] = [] if at is None else list(at["offsets"])
        self.ends: list[int] = []
        self._queues: list[deque[Any]] = []
        self._at_end: list[bool] = []
        self._paused: set[int] = set()
        try:
            found = consumer.list_topics(topic, timeout=connect[1]).topics[topic]
            if found.error is not None or not found.partitions:
                problem = "no partitions" if found.error is None else found.error.str()
                raise SourceError(f"Kafka topic {topic}", f"{problem}; check the name")
            # Watermarks before the assignment: a broker answers one request after the other, and fetches would come
            # first.
            marks = [
                consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=_PATIENCE)
                for p in range(len(found.partitions))
            ]
        except KafkaException as error:
            # The servers of a configuration may be others, and a failed look at the topic has no further cause.
            where, seconds = connect
            text = f"no broker answered at {where} within {seconds:g} s ({error.args[0].str()}). No row was read"
            raise SourceError(f"Kafka topic {topic}", text) from error
        # A partition of the position that the topic lacks ends before offset 0.
        for p, (low, high) in enumerate([*marks, *[(0, -1)] * (len(self.offsets) - len(marks))]):
            if p < len(self.offsets) and self.offsets[p] > high:
                raise SourceError(
                    f"Kafka topic {topic}", f"ends before offset {self.offsets[p]} of partition {p}, the position of "
                    "the run: another topic has its name now; begin another run for it"
                )  # fmt: skip
            self.offsets += [low] if p == len(self.offsets) else []
            self.ends.append(high)
            self._queues.append(deque())
            self._at_end.append(False)
        consumer.assign([TopicPartition(topic, p, offset) for p, offset in enumerate(self.offsets)])

    def take(self, p: int, most: int, end: int | None) -> list[Any]:
        """Return at most ``most`` messages of a partition, before offset ``end``; fewer only if there are no more."""
        from confluent_kafka import TopicPartition

        queue, heard = self._queues[p], time.monotonic()
        while len(queue) < most and not self._at_end[p] and not (queue and end and queue[-1].offset() + 1 >= end):
            if end is not None and not queue and self.offsets[p] >= end:
                return []
            if self.fetch():
                heard = time.monotonic()
            elif end is not None and time.monotonic() - heard > _PATIENCE:
                raise SourceError(
                    f"Kafka topic {self._topic}, partition {p}", f"no broker has answered for {_PATIENCE:.0f} s, "
                    f"offset {self.offsets[p]} is next of {end}; run again to resume there"
                )  # fmt: skip
        messages: list[Any] = []
        while queue and len(messages) < most and (end is None or queue[0].offset() < end):
            messages.append(queue.popleft())
        if p in self._paused and len(queue) < self._most // 2:
            self._consumer.resume([TopicPartition(self._topic, p)])
            self._paused.discard(p)
        return messages

    def fetch(self) -> bool:
        """Wait a moment for messages; return whether a broker answered."""
        from confluent_kafka import TopicPartition

        self._idle()  # also while brokers are down
        # `consume` would wait for the full number of messages, so it only reads those that follow the first.
        heard, first = False, self._consumer.poll(_POLL)
        messages = [] if first is None else [first, *self._consumer.consume(1000, 0)]
        for message in messages:
            problem, p = message.error(), message.partition()
            if problem is None:
                heard = True
                self._queues[p].append(message)
                self._at_end[p] = False
                if len(self._queues[p]) >= self._most and p not in self._paused:
                    self._consumer.pause([TopicPartition(self._topic, p)])
                    self._paused.add(p)
            # The other errors are those of brokers that may come back.
            elif problem.name() == "_PARTITION_EOF":
                heard = self._at_end[p] = True
            elif not problem.retriable() and problem.name() not in ("_TRANSPORT", "_ALL_BROKERS_DOWN"):
                raise SourceError(f"Kafka topic {self._topic}, partition {p}", problem.str())
        return heard


from_kafka = KafkaRows
