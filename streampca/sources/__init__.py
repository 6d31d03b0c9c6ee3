"""Rows from files, databases, topics and synthetic streams: read in chunks, as often as asked."""

from streampca.sources import flights, synthetic
from streampca.sources.base import BlockSource, NumberedRows, PositionedRows
from streampca.sources.csv_rows import CsvRows, from_csv
from streampca.sources.databases import QueryRows, from_query
from streampca.sources.files import FileRows, open_rows
from streampca.sources.kafka import KafkaRows, from_kafka
from streampca.sources.ndjson_rows import NdjsonRows, from_ndjson
from streampca.sources.parquet import ParquetRows, from_parquet
from streampca.sources.reading import Reading

__all__ = [
    "BlockSource",
    "CsvRows",
    "FileRows",
    "KafkaRows",
    "NdjsonRows",
    "NumberedRows",
    "ParquetRows",
    "PositionedRows",
    "QueryRows",
    "Reading",
    "flights",
    "from_csv",
    "from_kafka",
    "from_ndjson",
    "from_parquet",
    "from_query",
    "open_rows",
    "synthetic",
]
