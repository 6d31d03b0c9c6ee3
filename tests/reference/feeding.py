"""Rows for a processor, and an outlet that records what it hides and releases."""

import numpy as np

from streampca.privacy.outlet import Outlet
from streampca.privacy.randomness import Draws
from streampca.processors.base import Processor
from streampca.release.release import Release


def feed(processor: Processor, rows: np.ndarray, *sizes: int) -> tuple[Processor, list[Release]]:
    """Absorb rows in blocks of these sizes in turn, cut where a release is due."""
    releases, start, i = [], 0, 0
    while start < len(rows):
        size = min(sizes[i % len(sizes)] if sizes else len(rows), processor.rows_until_release, len(rows) - start)
        processor, release = processor.absorb(rows[start : start + size])
        start, i = start + size, i + 1
        if release is not None:
            releases.append(release)
    return processor, releases


class Overheard(Outlet):
    """The outlet of the next step of a processor, which records exact values, and noisy ones with their noise."""

    def __init__(self, processor: Processor) -> None:
        super().__init__(processor.source, processor.chain)
        self.hidden: list[tuple[str, tuple[np.ndarray, ...]]] = []
        self.released: list[tuple[np.ndarray, float]] = []

    def hide(self, kind: str, *exact: np.ndarray) -> Draws:
        self.hidden.append((kind, tuple(np.array(part) for part in exact)))
        return super().hide(kind, *exact)

    def gaussian(self, kind: str, values: np.ndarray, std: float, grid: float) -> np.ndarray:
        released = super().gaussian(kind, values, std, grid)
        self.released.append((released, std))
        return released
