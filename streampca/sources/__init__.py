"""Rows from files, generators, river and synthetic streams: read in chunks, as often as asked."""

from streampca.sources import flights, synthetic
from streampca.sources.base import BlockSource
from streampca.sources.csv_rows import CsvRows, from_csv
from streampca.sources.generators import from_blocks
from streampca.sources.parquet import ParquetRows, from_parquet
from streampca.sources.river_rows import from_river

__all__ = [
    "BlockSource",
    "CsvRows",
    "ParquetRows",
    "flights",
    "from_blocks",
    "from_csv",
    "from_parquet",
    "from_river",
    "synthetic",
]
