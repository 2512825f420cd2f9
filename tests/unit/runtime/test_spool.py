"""Streams on disk."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainmaster.runtime.spool import SpoolReader, SpoolWriter, Stream, encode


@pytest.fixture
def troubles() -> Any:
    return []


@pytest.fixture
def stream(tmp_path: Path, troubles: Any) -> Iterator[Any]:
    made = Stream(str(tmp_path), "log-0", troubles.append)
    yield made
    made.close()


def test_lines_are_numbered_from_one_across_writers(tmp_path: Path) -> None:
    path = tmp_path / "core.jsonl"
    first = SpoolWriter(str(path))
    assert [first.append(encode({"n": n})) for n in (1, 2)] == [1, 2]
    first.close()
    second = SpoolWriter(str(path))
    assert second.append(encode({"n": 3})) == 3
    second.close()
    assert SpoolReader(str(path)).read(1) == [b'{"n":2}', b'{"n":3}']


def test_a_torn_line_is_neither_read_nor_kept(tmp_path: Path) -> None:
    path = tmp_path / "core.jsonl"
    path.write_bytes(b'{"n":1}\n{"n":2')
    reader = SpoolReader(str(path))
    assert reader.read(0) == [b'{"n":1}']
    assert reader.read(1) == []
    writer = SpoolWriter(str(path))
    assert writer.lines == 1
    writer.append(encode({"n": 9}))
    writer.close()
    assert reader.read(1) == [b'{"n":9}']
    assert path.read_bytes() == b'{"n":1}\n{"n":9}\n'


def test_batches_are_bounded_but_a_giant_goes_alone(tmp_path: Path) -> None:
    path = tmp_path / "core.jsonl"
    writer = SpoolWriter(str(path))
    for size in (10, 600_000, 600_000, 2_000_000, 10):
        writer.append(encode({"x": "y" * size}))
    writer.close()
    reader = SpoolReader(str(path))
    counts = []
    after = 0
    while lines := reader.read(after):
        counts.append(len(lines))
        after += len(lines)
    assert counts == [2, 1, 1, 1]
    assert len(reader.read(0, max_records=1)) == 1


def test_full_disk_is_reported_once_and_repaired(
    stream: Any, troubles: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.append({"n": 1})
    real = os.write
    full = True

    def write(file: Any, data: Any) -> Any:
        # Half of the line gets through, as on a real disk.
        if full and data.startswith(b"{"):
            return real(file, data[:3])
        if full:
            raise OSError(28, "No space left on device")
        return real(file, data)

    monkeypatch.setattr(os, "write", write)
    assert [stream.append({"n": n}) for n in (2, 3, 4)] == [2, 3, 4]
    assert stream.degraded
    assert len(troubles) == 1
    assert stream.read(0) == [b'{"n":1}']
    assert stream.read(1) == [b'{"n":2}', b'{"n":3}', b'{"n":4}']
    stream.ack(2)
    assert stream.read(2) == [b'{"n":3}', b'{"n":4}']
    full = False
    assert stream.append({"n": 5}) == 5
    assert not stream.degraded
    assert (tmp_path / "log-0.jsonl").read_bytes() == b'{"n":1}\n{}\n{"n":3}\n{"n":4}\n{"n":5}\n'


def test_the_master_may_know_less_than_before(stream: Any) -> None:
    for n in range(1, 6):
        stream.append({"n": n})
    assert len(stream.read(3)) == 2
    assert stream.read(1)[0] == b'{"n":2}'


def test_acknowledged_position_is_remembered(stream: Any, tmp_path: Path, troubles: Any) -> None:
    stream.append({"n": 1})
    stream.ack(1)
    stream.save_acked()
    again = Stream(str(tmp_path), "log-0", troubles.append)
    assert again.acked == 1
    (tmp_path / "log-0.acked").write_text("garbage")
    assert Stream(str(tmp_path), "log-0", troubles.append).acked == 0


@settings(max_examples=200)
@given(st.dictionaries(st.text(), st.text() | st.integers() | st.lists(st.text(st.characters()))))
def test_a_record_is_one_line_that_jsonb_takes(record: Any) -> None:
    line = encode(record)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    parsed = json.loads(line)
    assert not any("\0" in text for text in texts({**parsed, "line": ""}))
    json.dumps(parsed, ensure_ascii=False).encode("utf-8")
    if all(ok(text) for text in texts(record)):
        assert parsed == record


def texts(value: Any) -> Iterator[Any]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from value
        for item in value.values():
            yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)


def ok(text: Any) -> Any:
    return all(letter != "\0" and not 0xD800 <= ord(letter) < 0xE000 for letter in text)


def test_half_a_character_is_replaced() -> None:
    assert json.loads(encode({"a": "x\ud800y\0z"})) == {"a": "x\ufffdy\ufffdz"}


def test_a_line_of_the_log_keeps_its_nuls() -> None:
    record = {"line": "x\ud800y\0z", "a": {"line": "\0"}}
    assert json.loads(encode(record)) == {"line": "x\ufffdy\0z", "a": {"line": "\ufffd"}}


def test_removed_spool_file_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "core.jsonl"
    writer, reader = SpoolWriter(str(path)), SpoolReader(str(path))
    writer.append(b"1\n")
    assert reader.read(0) == [b"1"]
    path.unlink()
    writer.append(b"2\n")
    assert reader.read(1) == [b"2"]
    assert reader.count() == 2
    reader.close()
    writer.close()
