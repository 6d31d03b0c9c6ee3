"""The written summary of a demo, and the picture of its regret curve. Curator only, and marked so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from streampca.cli.live import floor
from streampca.regret import RegretRecord

CURATOR = "curator only: exact functions of raw rows"


@dataclass(frozen=True)
class Facts:
    """What a summary tells."""

    title: str
    intro: str
    parameters: Sequence[tuple[str, str]]
    guarantee: str
    outcome: Sequence[tuple[str, str]]
    records: Sequence[RegretRecord]
    files: Sequence[tuple[str, str]]


def write_summary(path: Path, facts: Facts) -> None:
    """Write the summary as Markdown."""
    lines = [f"# {facts.title}", "", facts.intro, "", "## What ran", ""]
    lines += [f"- {name}: {value}" for name, value in facts.parameters]
    lines += ["", "## What is promised", "", facts.guarantee, "", "## What came of it", ""]
    lines += [f"- {name}: {value}" for name, value in facts.outcome]
    lines += ["", f"## Regret over time ({CURATOR})", ""]
    lines += ["| rows | OPT per row | reward per row | regret per row | bound on it | captured |", "|---:" * 6 + "|"]
    lines += [
        f"| {r.t} | {r.opt / r.t:.5f} | {r.reward / r.t:.5f} | {r.average:.6f} | {r.bound / r.t:.5f} "
        f"| {floor(r.captured, 5)} |"
        for r in facts.records
    ]
    lines += ["", "## Files", ""]
    lines += [f"- `{name}`: {what}" for name, what in facts.files]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def milestones(records: Sequence[RegretRecord], count: int = 10) -> list[RegretRecord]:
    """Some records at about equal ratios of t, the last one among them."""
    if not records:
        return []
    first, last = records[0].t, records[-1].t
    wanted = [first * (last / first) ** (i / (count - 1)) for i in range(count)]
    chosen = {min(records, key=lambda r: abs(r.t - t)).t: None for t in wanted}
    return [record for record in records if record.t in chosen]


def draw(path: Path, records: Sequence[RegretRecord], title: str) -> bool:
    """Draw the regret curve as PNG; False if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    t = [r.t for r in records]
    figure = Figure(figsize=(8.0, 4.8), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    axes.plot(t, [r.opt / r.t for r in records], color="0.6", linestyle=":", label="OPT per row, for scale")
    axes.plot(t, [r.bound / r.t for r in records], color="tab:orange", label="bound on the regret per row")
    axes.plot(t, [r.average for r in records], color="tab:blue", linewidth=2, label="regret per row")
    axes.set(xscale="log", yscale="log", xlabel="rows seen", ylabel="per row, in units of squared row norm")
    axes.set_title(title, loc="left", fontsize=11)
    axes.grid(alpha=0.25, which="both", linewidth=0.5)
    axes.legend(frameon=False, loc="lower left")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.supxlabel(CURATOR, fontsize=8, color="0.45", x=0.99, ha="right")
    figure.savefig(path)
    return True
