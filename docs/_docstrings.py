"""Extension of griffe: reads ``name : what it is`` as a name and its description, which griffe takes for a type."""

import re
from typing import Any

from griffe import Extension, Object

_SECTION = re.compile(r"^(Parameters|Attributes)\n-+\n(.*?)(?=^\w[^\n]*\n-{3,}$|\Z)", re.DOTALL | re.MULTILINE)
_ENTRY = re.compile(r"^([\w*, ]+?) ?: ", re.MULTILINE)


class Descriptions(Extension):
    """Puts each description on a line of its own."""

    def on_instance(self, *, obj: Object, **_: Any) -> None:
        """Rewrite the docstring of an object."""
        if obj.docstring is not None:
            obj.docstring.value = _SECTION.sub(
                lambda found: f"{found[1]}\n{'-' * len(found[1])}\n" + _ENTRY.sub(r"\1\n    ", found[2]),
                obj.docstring.value,
            )
