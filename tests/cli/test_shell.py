import subprocess
import sys

import pytest

import streampca
from streampca.cli import main
from streampca.cli.algorithms import make_algorithm
from streampca.cli.bounds import read_bounds
from streampca.errors import BadParameter


@pytest.mark.parametrize(
    "argv", [["--help"], ["run", "--help"], ["demo", "--help"], ["scenario", "--help"], ["bench", "--help"]]
)
def test_help_is_there(argv, capsys):
    assert main(argv) == 0
    assert "Usage: streampca" in capsys.readouterr().out


def test_version_and_cite(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == streampca.__version__
    assert main(["version"]) == 0
    assert f"streampca {streampca.__version__}" in capsys.readouterr().out
    assert main(["cite"]) == 0
    assert "@inproceedings{DTTZ14" in capsys.readouterr().out


def test_an_unknown_command_gets_a_suggestion(capsys):
    assert main(["rum"]) == 2
    assert 'Did you mean "run"' in capsys.readouterr().err


def test_one_blas_thread_is_used():
    code = (
        "import numpy, threadpoolctl; threadpoolctl.threadpool_limits(2); from streampca.cli import main; "
        "main(['cite']); print({p['num_threads'] for p in threadpoolctl.threadpool_info() if p['user_api'] == 'blas'})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "{1}"


def test_help_leaves_out_what_is_slow():
    code = (
        "import sys; from streampca.cli import main; main(['--help']); "
        "print(sorted({'pandas', 'river', 'matplotlib', 'dp_accounting', 'pyarrow', 'sklearn'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("text", "bounds"),
    [("0:1", (0.0, 1.0)), ("-1:1e3", (-1.0, 1000.0)), ("a=0:1,b b=-2:3", {"a": (0.0, 1.0), "b b": (-2.0, 3.0)})],
)
def test_bounds_as_text(text, bounds):
    assert read_bounds(text) == bounds


@pytest.mark.parametrize("content", ["[1, 2]", '{"a": 3}', '{"a": [1, "x"]}', "{"])
def test_bounds_files_are_checked(tmp_path, content):
    path = tmp_path / "b.json"
    path.write_text(content)
    with pytest.raises(BadParameter, match=r"b\.json"):
        read_bounds(str(path))


def test_algorithms_by_either_name():
    common = {"n_components": 2, "epsilon": 1.0, "delta": 1e-5, "horizon": None}
    for name in ("fpl", "PrivateFPL"):
        made = make_algorithm(name, common, extra=['regularisation="privacy"', "n_features=7"])
        assert isinstance(made, streampca.PrivateFPL)
        assert made.release_every == 100
        assert made.n_features == 7
    with pytest.raises(BadParameter, match="--horizon"):
        make_algorithm("perturbed-leader", common | {"horizon": 5})
    with pytest.raises(BadParameter, match="none of that name"):
        make_algorithm("Stream", common)
