"""``streampca registry``: a record that the schema of OpenDP's registry of deployments accepts."""

import json

import numpy as np
import pytest

import streampca as sp
from streampca.cli.registry import yaml

TEXT, NUMBER, TEXTS = (str,), (int, float), [str]
#: Keys, types and enumerations of schemas/deployments-schema.yaml in opendp/deployments-registry-data, of July 2026.
#: A key with a star is required; no others are allowed.
SCHEMA = {
    "url_slug*": TEXT,
    "status*": {
        "Converted", "Draft", "Pending", "Changes Required", "Approved", "Approved (Update Requested)",
        "Approved (Pending)",
    },
    "tier*": {1, 2, 3},
    "deployment*": {
        "basic*": {
            "name*": TEXT, "data_curators*": TEXTS, "intended_use*": TEXT,
            "data_product_type*": {
                "Summary statistics", "Machine learning model", "Dataset", "Synthetic data", "Interactive API",
                "SQL queries",
            },
            "data_product_region*": TEXT, "description*": TEXT, "publication_date*": TEXT,
            "data_product_sector": {"Technology", "Healthcare", "Education", "Government", "Energy", "Finance"},
        },
        "dp_variant": {
            "variant_name": {"Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"},
            "data_domain": TEXT, "unprotected_quantities": TEXT,
        },
        "privacy_loss": {
            "privacy_unit": TEXT, "privacy_unit_details": TEXT,
            "privacy_parameters": {"epsilon": NUMBER, "delta": NUMBER, "rho": NUMBER},
            "privacy_parameters_details": TEXT,
        },
        "deployment_model": {
            "model_name": {"Local", "Central", "Shuffle", "Federated", "Varies"}, "model_name_details": TEXT,
            "actors": TEXT, "release_type": {"One release", "Many releases"}, "release_type_details": TEXT,
            "data_source_type": {"Static", "Dynamic"}, "data_source_type_details": TEXT,
            "access_type": {"Interactive", "Non-interactive"}, "access_type_details": TEXT,
        },
        "accounting": {"post_processing": TEXT, "composition": TEXT},
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": TEXT, "mechanisms": TEXT, "justification": TEXT,
        },
        "administrative": {"sources": TEXT, "notes": TEXT, "registry_authors*": TEXTS},
    },
}  # fmt: skip


def read(text):
    """Read the YAML that the command writes: mappings, block text, lists of texts, quoted texts, numbers."""
    lines = text.splitlines()

    def block(indent):
        found = {}
        while lines and len(lines[0]) - len(lines[0].lstrip(" ")) == indent:
            name, _, value = lines.pop(0).strip().partition(": ")
            name, deeper = name.removesuffix(":"), " " * (indent + 2)
            if value == "|":
                found[name] = ""
                while lines and lines[0].startswith(deeper):
                    found[name] += lines.pop(0)[indent + 2 :] + "\n"
            elif value:
                found[name] = json.loads(value)
                # Readers of YAML 1.1 read a number with an exponent as text unless it has a point.
                assert "e" not in value or value[0] == '"' or "." in value
            elif lines[0].startswith(f"{deeper}- "):
                found[name] = []
                while lines and lines[0].startswith(f"{deeper}- "):
                    found[name].append(json.loads(lines.pop(0).strip()[2:]))
            else:
                found[name] = block(indent + 2)
        return found

    found = block(0)
    assert not lines
    return found


def check(value, schema, where=""):
    if isinstance(schema, dict):
        allowed = {name.removesuffix("*"): part for name, part in schema.items()}
        assert value.keys() <= allowed.keys(), where
        assert {name[:-1] for name in schema if name.endswith("*")} <= value.keys(), where
        for name, part in value.items():
            check(part, allowed[name], f"{where}/{name}")
    elif isinstance(schema, set):
        assert value in schema, where
    elif isinstance(schema, list):
        assert value, where
        assert all(isinstance(one, str) for one in value), where
    else:
        assert isinstance(value, schema), where


def records(command, path, *options):
    said = command("registry", path, *options)
    assert said.status == 0, said.err
    record = read(said.out)
    check(record, SCHEMA)
    return record


def write(path, algorithm, rows, **options):
    stream = sp.Stream(algorithm, seed=1, **options)
    releases = stream.push_many(rows).releases
    path.write_text("".join(release.to_json() + "\n" for release in releases))
    return releases[0]


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(400, 3)) * 0.2


def test_the_record_of_a_run(rows, command, tmp_path):
    table, out, record = tmp_path / "rows.csv", tmp_path / "Flights 2026.jsonl", tmp_path / "record.yaml"
    np.savetxt(table, rows, delimiter=",", header='age,"a: b",pulse', comments="", fmt="%.17g")
    options = ["-k", 2, "--epsilon", 1, "--release-every", 100, "--bounds", "-1:1", "--no-live", "--columns", "all"]
    assert command("run", table, *options, "--out", out).status == 0
    found = records(command, out)
    assert (found["url_slug"], found["status"], found["tier"]) == ("flights_2026", "Draft", 3)
    parts = found["deployment"]
    assert parts["dp_variant"]["variant_name"] == "Zero-concentrated DP"
    assert "- a: b: -1 to 1" in parts["dp_variant"]["data_domain"]
    assert "several rows of one person" in parts["dp_variant"]["unprotected_quantities"]
    release = next(sp.read_releases(out))
    spent = {"epsilon": 1.0, "delta": 1e-6, "rho": release.guarantee.rho}
    assert parts["privacy_loss"]["privacy_parameters"] == spent
    assert release.guarantee.sentence in parts["privacy_loss"]["privacy_parameters_details"]
    assert parts["deployment_model"]["release_type"] == "Many releases"
    assert "release_every=100" in parts["implementation"]["preprocessing_and_hyperparameter_tuning"]
    said = command("registry", out, "--out", record)
    assert said.status == 0
    assert read(record.read_text()) == found
    assert command("registry", out, "--out", record).status == 2
    # The header has the guarantee in words, too.
    header = json.loads(out.read_text().splitlines()[0])
    assert header["guarantee_in_words"]["sentence"] == release.guarantee.sentence
    assert header["guarantee_in_words"]["not_protected"] == list(release.guarantee.unprotected)


def test_records_of_other_runs(rows, command, tmp_path):
    path = tmp_path / "one.jsonl"
    pure = sp.Tumbling(sp.MatrixLaplaceCovariance(n_components=1, epsilon=1.0), release_every=400)
    cases = {
        "Pure DP": (pure, {"row_norm": 1.0}),
        "Zero-concentrated DP": (
            sp.PrivateFPL(n_components=1, epsilon=1.0, adjacency="replace", release_every=100),
            {"bounds": "private", "features": 3, "warmup": 100},
        ),
        "Approximate DP": (
            sp.Tumbling(sp.ExactSubspace(n_components=1, epsilon=1.0, delta=1e-6), release_every=400),
            {"row_norm": 1.0},
        ),
    }
    for variant, (algorithm, options) in cases.items():
        write(path, algorithm, rows, **options)
        parts = records(command, path)["deployment"]
        assert parts["dp_variant"]["variant_name"] == variant
        assert ("rho" in parts["privacy_loss"]["privacy_parameters"]) is variant.startswith("Zero")
        several = variant.startswith("Zero")
        assert parts["deployment_model"]["release_type"] == ("Many releases" if several else "One release")
        is_private = "are estimated within" in parts["implementation"]["preprocessing_and_hyperparameter_tuning"]
        assert is_private is several
    with sp.Store(tmp_path / "run.db") as store:
        sp.Stream(sp.PrivateFPL(n_components=1, epsilon=1.0), row_norm=1.0, store=store).push_many(rows)
    settings = records(command, tmp_path / "run.db")["deployment"]["implementation"]
    assert "release_every=100" in settings["preprocessing_and_hyperparameter_tuning"]


def test_what_has_no_record(rows, command, tmp_path):
    path = tmp_path / "none.jsonl"
    write(path, sp.Oja(n_components=1), rows, row_norm=1.0)
    said = command("registry", path)
    assert (said.status, "no guarantee to register" in said.err, said.out) == (2, True, "")
    path.write_text("")
    said = command("registry", path)
    assert (said.status, "there is no release yet" in said.err) == (2, True)


def test_text_cannot_leave_its_place():
    hostile = {"name": 'a"\n: b\x1b[31m', "lines": ["- x\nkey: value", "#"], "number": 1e-06, "data_curators": ("- '",)}
    text = "\n".join(yaml(hostile))
    found = read(text)
    assert found.keys() == hostile.keys()
    assert found["number"] == 1e-06
    assert found["lines"].count("\n") == 2
    assert found["data_curators"] == ["- '"]
    assert "\x1b" not in text
