import shlex
import subprocess
import sys

import pytest

import streampca
from streampca.cli.algorithms import command_of, make_algorithm
from streampca.cli.app import application
from streampca.errors import UsageError
from streampca.rows.bounds import read_bounds

COMMON = {"n_components": 2, "epsilon": 1.0, "delta": 1e-5}


def python(*words):
    """The last line that a process of Python prints."""
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


def test_every_command_has_a_line_in_the_help(command):
    said = command("--help")
    lines = {line.split()[1]: line.split()[2:-1] for line in said.out.splitlines() if "│ " in line}
    for name in (
        "audit", "backup", "check", "demo", "export", "ledger", "pca", "plan", "report", "resume", "run", "serve",
        "show", "status", "transform", "verify", "version", "--install-completion",
    ):  # fmt: skip
        assert len(lines[name]) > 2, name


def test_completion_is_there_for_every_shell():
    for shell in ("bash", "zsh", "fish"):
        script = application().generate_completion(prog_name="streampca", shell=shell)
        for word in ("transform", "release-every", "zero-out"):
            assert word in script, (shell, word)


def test_words_for_yes_and_no():
    for on, words in ((True, "yes YES true on 1"), (False, "no No false FALSE off 0")):
        for word in words.split():
            assert make_algorithm("fpl", COMMON, extra={"publish_regret": word}).publish_regret is on, word
    with pytest.raises(UsageError, match="--set publish_regret=maybe: expected yes or no"):
        make_algorithm("fpl", COMMON, extra={"publish_regret": "maybe"})


def test_version(command):
    assert command("--version").out.strip() == streampca.__version__
    assert f"streampca {streampca.__version__}" in command("version").out
    assert python("-m", "streampca", "--version") == streampca.__version__  # the package is the command


def test_help_uses_one_blas_thread_and_leaves_out_what_is_slow():
    code = (
        "import sys, numpy, threadpoolctl; threadpoolctl.threadpool_limits(2); from streampca.cli import main; "
        "main(['--help']); "
        "print({p['num_threads'] for p in threadpoolctl.threadpool_info() if p['user_api'] == 'blas'}, "
        "sorted({'pandas', 'river', 'matplotlib', 'dp_accounting', 'pyarrow', 'sklearn'} & set(sys.modules)))"
    )
    assert python("-c", code) == "{1} []"


def test_bounds_as_text_and_in_files(tmp_path):
    assert read_bounds("-1:1e3") == (-1.0, 1000.0)
    assert read_bounds("a=0:1,b b=-2:3") == {"a": (0.0, 1.0), "b b": (-2.0, 3.0)}
    path = tmp_path / "b.json"
    for content in ("[1, 2]", '{"a": 3}', '{"a": [1, "x"]}', "{"):
        path.write_text(content)
        with pytest.raises(UsageError, match=r"b\.json"):
            read_bounds(str(path))


def test_algorithms_by_either_name():
    for name in ("fpl", "PrivateFPL"):
        made = make_algorithm(name, COMMON | {"horizon": None}, extra={"solver": '"exact"', "publish_regret": "yes"})
        assert isinstance(made, streampca.PrivateFPL)
        assert (made.release_every, made.publish_regret) == (100, True)
    with pytest.raises(UsageError, match="--horizon"):
        make_algorithm("PerturbedLeader", COMMON | {"horizon": 5})
    with pytest.raises(UsageError, match="none of that name"):
        make_algorithm("Stream", COMMON)


def test_options_of_a_strategy_have_its_name_before_theirs():
    common = COMMON | {"horizon": 9}
    made = make_algorithm("fpl", common, extra={"solver": "smoothed", "solver.drift": "0.25"})
    assert made.solver == streampca.Smoothed(drift=0.25)
    discrete = make_algorithm("fpl", common, extra={"noise": "tree", "noise.discrete": "yes"})
    assert discrete.noise == streampca.Tree(discrete=True)
    for algorithm, settings in (
        (made, ['solver="smoothed"', "solver.drift=0.25"]),
        (discrete, ['noise="tree"', "noise.discrete=true"]),
    ):
        words = shlex.split(command_of(algorithm))
        assert [words[i + 1] for i, word in enumerate(words) if word == "--set"] == settings
        extra = dict(setting.split("=") for setting in settings)
        assert make_algorithm("fpl", common, extra=extra) == algorithm
    for extra, message in (
        ({"solver.drift": "1"}, "give solver too: exact, tracking, smoothed"),
        ({"solver": "exact", "solver.drift": "1"}, "drift: Exact takes no such parameter"),
        ({"solver": "smoothed", "solver.drift": "fast"}, "drift='fast'"),
        ({"solver": "other"}, "expected one of 'exact'"),
    ):
        with pytest.raises(UsageError, match=message):
            make_algorithm("fpl", common, extra=extra)
