import re

import pytest
from many_streams import Table, app


@pytest.mark.ci
def test_a_small_fleet_is_measured(capsys):
    status = app(["--tenants", "2000", "--blocks", "3"])
    out = capsys.readouterr().out
    for words in ("begin a tenant", "a record, endless", "push_many, durable", "resume"):
        assert re.search(rf"^{words}.* \d+\.\d\d ", out, re.MULTILINE), words
    assert status == ("MISSED" in out)


def test_a_bar_can_be_missed(capsys):
    table = Table()
    table.add("fast", 1.0, 2.0, "µs")
    table.add("slow", 3.0, 2.0, "µs")
    table.add("any", 3.0, None, "MB")
    assert table.missed == ["slow"]
    assert [line.endswith("MISSED") for line in capsys.readouterr().out.splitlines()] == [False, True, False]
