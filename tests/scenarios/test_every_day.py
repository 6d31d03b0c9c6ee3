"""A run by the calendar, killed twice, releases what an uninterrupted one does."""

import pytest
from every_day import DAYS, main


@pytest.mark.ci
def test_two_kills_change_no_release(tmp_path):
    found = main(tmp_path)
    assert found["statuses"] == [-9, -9]
    first, second = found["releases at the kills"]
    assert 5 <= first < second < DAYS
    assert found["equal"]
    assert found["releases"] == DAYS
    assert 'publication_date: "2026-01-02"' in found["record"]
    assert "Adjacency add-remove" in found["record"]
    assert 'privacy_unit: "one person"' in found["record"]
    assert "the number of rows" not in found["record"].partition("privacy_loss")[0]
