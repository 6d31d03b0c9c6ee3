"""Rows from files, generators, river and synthetic streams: read in chunks, as often as asked."""

from streampca.sources.base import BlockSource
from streampca.sources.csv_rows import CsvRows, from_csv

__all__ = ["BlockSource", "CsvRows", "from_csv"]
