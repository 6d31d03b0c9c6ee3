"""Names of features are public: a first row that is read as a header must not become names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from itertools import pairwise
from typing import Final

from streampca.errors import SourceError

#: Cells of missing values, besides nan of any case and sign, without surrounding spaces.
MISSING: Final = frozenset({"", "NA", "N/A", "n/a", "NULL", "null", "None", "<NA>", "#N/A"})
#: What is said of a file or table without types, because one cell must not decide which columns hold numbers.
NO_TYPES = "has no types: name its numeric columns with `columns`, or in `bounds`. Nothing was spent"
NAME_THEM = "if they are names, pass them with features="
_MONTH = "(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
_TIME = r"(?:[ ,t]+\d[\d:.,]*)? ?(?:[ap]\.?m\.?)? ?(?:z|utc|gmt|[+-]\d\d:?\d\d)?"
#: Numbers with letters. Possessive, so that the time is linear in the length of a name.
_NUMBER = re.compile(r"[+-]?+(?:nan(?:\([0-9a-z_]*+\))?|inf(?:inity)?|[\d.]++e[+-]?+\d++)", re.IGNORECASE)
#: Dates with the name of a month, and times with a zone.
_DATE = re.compile(
    rf"(?:[a-z]{{3,9}}[,.]? )?\d{{1,2}}(?:st|[nr]d|th)?[ ./,-]*{_MONTH}[ ./,-]*\d{{2,4}}{_TIME}"
    rf"|(?:[a-z]{{3,9}}[,.]? )?{_MONTH}[ ./-]+\d{{1,2}}(?:st|[nr]d|th)?[ ,./-]+\d{{2,4}}{_TIME}"
    rf"|\d[\d:./-]*{_TIME}",
    re.IGNORECASE,
)
_LONGEST_DATE = 50


def looks_like_value(name: str, missing: frozenset[str] = MISSING) -> bool:
    """Return whether a name may be a cell of a row: empty, a missing value, a number, a date or a time."""
    text = name.strip()
    if text in missing or _NUMBER.fullmatch(text):
        return True
    if text.isidentifier() or not any(map(str.isdigit, text)):
        return False
    if not any(letter.isalpha() or letter == "_" for letter in text):
        return True  # a digit and no letter, such as 1,5 or 31.12.2024 or 5 %
    text = " ".join(text.split())
    if len(text) > _LONGEST_DATE:
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return _DATE.fullmatch(text) is not None
    return True


def repeated(names: Iterable[str]) -> set[str]:
    """Return the names that occur more than once. Sorting takes less memory than a counter of a million names."""
    return {name for name, following in pairwise(sorted(names)) if name == following}


def refuse_values(names: Iterable[object], where: str, remedy: str, missing: frozenset[str] = MISSING) -> None:
    """Raise `SourceError` if a name from the rows looks like a value; the message holds positions only.

    Labels that are not text, such as numbers of columns without names, are not cells of a header.
    """
    # Privacy: the message must not quote a name, which may be a value of the first person.
    found = [at for at, name in enumerate(names, 1) if isinstance(name, str) and looks_like_value(name, missing)]
    if found:
        places = ", ".join(map(str, found[:9])) + (", ..." if len(found) > 9 else "")
        raise SourceError(
            f"{where}, column {places}",
            f"the name looks like a value (a number, a date or nothing), and names of features are published; {remedy}"
        )  # fmt: skip
