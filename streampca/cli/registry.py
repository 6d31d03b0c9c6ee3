"""``streampca registry``: the record of a run for the public registry of deployments of differential privacy.

The record follows the schema of ``opendp/deployments-registry-data``. It is computed from public facts only: releases
and their header, or the public part of a store. What a program cannot know is left as TODO.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from streampca import __version__
from streampca.cli.files import OutputFile
from streampca.cli.options import Force, HyphenPath, RunPath, about
from streampca.errors import NoReleaseError, UsageError, printable
from streampca.release.release import Release
from streampca.views.facts import in_words, over_periods
from streampca.views.run_files import RunFiles

TODO = "TODO"


def registry(
    path: RunPath,
    /,
    *,
    out: Annotated[HyphenPath, about("YAML file of the record, or - for standard output.")] = Path("-"),
    force: Force = False,
) -> int:
    """Write a draft of the run's record for the registry of deployments.

    It holds unit, parameters, guarantee and mechanism of the run, in the form of
    OpenDP's registry. What only people know is TODO. Publishable.
    """
    # The first releases tell whether there are several; a long file is not read to its end.
    run = RunFiles(path)
    releases = run.new_releases()
    if not releases:
        raise NoReleaseError(f"{path}: there is no release yet; continue the run until one is due")
    if not releases[0].guarantee.is_private:
        raise UsageError(f"{path}: the run has no guarantee to register: {releases[0].guarantee.theorem}")
    record = record_of(releases[0], run.parameters, run.path.stem, several=len(releases) > 1)
    with closing(OutputFile(out, force=force)) as file:
        file.write("\n".join(yaml(record)) + "\n")
    return 0


def record_of(release: Release, parameters: Mapping[str, Any], name: str, *, several: bool) -> dict[str, Any]:
    """Return the record of a run from one of its releases, its public parameters and its name.

    Tuples are lists of the schema; lists are lines of text. ``several`` is True if the run has more than one release.
    """
    promised, terms, words = release.guarantee, release.terms, dict(in_words(release.guarantee))
    variant = "Zero-concentrated DP" if promised.rho is not None else "Approximate DP" if promised.delta else "Pure DP"
    spent = {"epsilon": promised.epsilon, "delta": promised.delta, "rho": promised.rho}
    columns = release.features or [f"feature {i + 1}" for i in range(release.n_features)]
    if terms.middle is not None and not terms.warmup:
        # Middle and scale are rounded, so that an end of 0 may have become 1e-14.
        ends = np.round(np.array([[-1.0], [1.0]]) + release.middle / release.scale, 12) * release.scale + 0.0
        columns = [f"{column}: {low:g} to {high:g}" for column, low, high in zip(columns, *ends, strict=True)]
    # Bounds are among the columns.
    settings = ", ".join(f"{key}={value}" for key, value in parameters.items() if key != "bounds")
    scale = "estimated within the guarantee" if terms.warmup else "public"
    basic = {
        "name": TODO, "data_curators": (TODO,), "intended_use": TODO, "data_product_type": "Summary statistics",
        # The registry uses this day where the date is unknown: only releases of a calendar have a time.
        "data_product_region": TODO, "description": TODO,
        "publication_date": "1900-01-01" if release.period is None else release.period[1].date().isoformat(),
    }  # fmt: skip
    variant_and_domain = {
        "variant_name": variant, "data_domain": ["Rows of numbers:", *(f"- {column}" for column in columns)],
        "unprotected_quantities": [f"- {one}" for one in promised.unprotected],
    }  # fmt: skip
    loss = {
        "privacy_unit": promised.unit,
        "privacy_unit_details": f"Adjacency {promised.adjacency}. {words['What is protected']} Contribution of the "
        f"unit: {promised.contribution}.",
        "privacy_parameters": {key: value for key, value in spent.items() if value is not None},
        "privacy_parameters_details": ("" if promised.mu is None else f"{promised.mu:.6g}-Gaussian DP. ")
        + words["What that means for an attacker"]
        + "".join(f" {name}: {text}." for name, text in over_periods(promised)),
    }
    model = {
        "model_name": "Central", "actors": TODO, "release_type": "Many releases" if several else "One release",
        "release_type_details": f"One budget covers {promised.scope}. It is not renewed.",
        "data_source_type": "Dynamic" if several else "Static", "access_type": "Non-interactive",
    }  # fmt: skip
    accounting = {
        "post_processing": "None by the program." if release.packed is None else "Subspaces, eigenvalues, "
        f"{'means ' if release.is_centered else ''}and error bars are computed from the released noisy sums.",
        "composition": f"{promised.theorem}. The parameters are for all of this together: {promised.scope}.",
    }  # fmt: skip
    implementation = {
        "preprocessing_and_hyperparameter_tuning": [
            f"- Ranges of columns, or the norm of rows, are {scale}; values beyond them are clipped.",
            "- A row with a missing or unusable value counts as absent." if terms.present is None else
            "- Missing cells are filled with the middle of their ranges, and sums are corrected by "
            f"{'private' if terms.present == 'private' else 'public'} shares of cells present.",
            f"- Settings: {settings}",
            f"- {TODO}: how they were chosen, and that it was without the rows.",
        ],
        "mechanisms": [
            f"- {promised.theorem} [{promised.citation}]", f"- Software: streampca {__version__}",
            "- Floating point: released values are rounded to 2**-20 of the noise, so that low digits hold nothing.",
            "- Time: the duration of a run is not protected and not published.",
            *([f"- Caveat: {promised.caveats}"] if promised.caveats else []),
            f"- {TODO}: who can read the rows, and how that is controlled.",
        ],
        "justification": TODO,
    }  # fmt: skip
    deployment = {
        "basic": basic, "dp_variant": variant_and_domain, "privacy_loss": loss, "deployment_model": model,
        "accounting": accounting, "implementation": implementation,
        "administrative": {"sources": TODO, "registry_authors": (TODO,)},
    }  # fmt: skip
    slug = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or "run"
    return {"url_slug": slug, "status": "Draft", "tier": 3, "deployment": deployment}


def yaml(value: Any, indent: str = "") -> Iterator[str]:
    """Yield the lines of a mapping as YAML."""
    for name, item in value.items():
        if isinstance(item, Mapping):
            yield f"{indent}{name}:"
            yield from yaml(item, f"{indent}  ")
        elif isinstance(item, (tuple, list)):
            is_text = isinstance(item, list)
            yield f"{indent}{name}:{' |' if is_text else ''}"
            yield from (f"{indent}  {printable(line) if is_text else f'- {json.dumps(line)}'}" for line in item)
        else:
            # Texts in double quotes, as in JSON. YAML 1.1 reads 1e-06 as text, and 1.0e-06 as a number.
            text = json.dumps(printable(item) if isinstance(item, str) else item, ensure_ascii=False)
            yield f"{indent}{name}: {text if isinstance(item, str) or '.' in text else text.replace('e', '.0e')}"
