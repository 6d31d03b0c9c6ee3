"""Table of the renderers of releases and streams.

Releases and streams are below the views in the order of imports: they find a renderer by its name, and import none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: Renderers by name. Importing `streampca` adds ``"views"``, which imports the module that adds all others.
RENDERERS: dict[str, Callable[..., Any]] = {}


def render(name: str, *parts: Any, **options: Any) -> Any:
    """Call a renderer. The first call imports `streampca.views`."""
    if name not in RENDERERS:
        RENDERERS["views"]()
    return RENDERERS[name](*parts, **options)
