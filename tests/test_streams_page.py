"""docs/streams.md: every Python example runs, in a folder of its own for each section."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "streams.md"
SECTIONS = {
    text.partition("\n")[0]: re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    for text in PAGE.read_text().split("\n## ")[1:]
}


@pytest.mark.parametrize("title", [title for title, blocks in SECTIONS.items() if blocks])
def test_a_section_runs_as_it_stands(title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = "\n".join(SECTIONS[title])
    if "confluent_kafka" in code:
        confluent = pytest.importorskip(
            "confluent_kafka", reason="needs confluent-kafka: pip install 'streampca[kafka]'"
        )
        mock = confluent.Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 0})
        broker = next(iter(mock.list_topics(timeout=30).brokers.values()))
        assert code.count('"broker:9092"') == 1
        code = code.replace("broker:9092", f"{broker.host}:{broker.port}")
    if "write_blocks" in code:
        pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'streampca[parquet]'")
    exec(compile(code, f"docs/streams.md, {title}", "exec"), {})


def test_every_source_and_sink_has_an_example() -> None:
    code = "\n".join("\n".join(blocks) for blocks in SECTIONS.values())
    for name in ("NumberedRows", "from_kafka", "from_query", "deliver", "reader_blocks", "collect"):
        assert name in code
