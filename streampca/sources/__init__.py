"""Rows from files, databases, topics and synthetic streams: read in chunks, as often as asked."""

from streampca.rows.protocol import NumberedRows, PositionedSource, RowSource
from streampca.sources import flights, synthetic
from streampca.sources.csv_rows import from_csv
from streampca.sources.databases import from_query
from streampca.sources.files import open_rows
from streampca.sources.kafka import from_kafka
from streampca.sources.ndjson_rows import from_ndjson
from streampca.sources.parquet import from_parquet
from streampca.sources.reading import Reading

__all__ = [
    "NumberedRows",
    "PositionedSource",
    "Reading",
    "RowSource",
    "flights",
    "from_csv",
    "from_kafka",
    "from_ndjson",
    "from_parquet",
    "from_query",
    "open_rows",
    "synthetic",
]
