import pytest

from streampca.cli import main

ASKED = ["plan", "--n-rows", "20000", "-d", "10", "-k", "2", "--epsilon", "1", "--delta", "1e-7"]


def test_a_plan_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(ASKED) == 0
    out = capsys.readouterr().out
    for part in ("PrivateFPL blt", "PrivateFPL tree", "PrivateOja", "use ", "why ", "assumed ", "advice "):
        assert part in out
    assert "GaussianCovariance" not in out
    assert main([*ASKED, "--all", "--spectrum", "0.3,0.2,0.1"]) == 0
    out = capsys.readouterr().out
    assert "GaussianCovariance" in out
    assert "the given spectrum" in out


def test_a_window_and_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ASKED, "--window", "100"]) == 0
    out = capsys.readouterr().out
    assert "SlidingWindowPCA" in out
    assert "warning" in out


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--spectrum", "0.1,x"], "--spectrum 0.1,x"),
        (["--spectrum", "pink"], "spectrum='pink'"),
        (["-k", "11"], "exceeds"),
    ],
)
def test_bad_questions_cost_one_line(more: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ASKED if "-k" not in more else [part for part in ASKED if part not in ("-k", "2")]
    assert main([*asked, *more]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
