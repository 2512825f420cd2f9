"""The picture of a simulated search."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from trainmaster.cli.search_picture import check_picture, draw
from trainmaster.cli.session import UsageError
from trainmaster.client.errors import ClientError
from trainmaster.client.view_records import SearchCourse, SearchRun, SearchSimulation

RUN = SearchRun(
    bests=((60.0, 2.0), (600.0, 1.0)),
    spent=(60.0, 900.0),
    seconds=900.0,
    slot_seconds=1800.0,
    trials=9,
    lengths=((3, 9),),
)
COURSE = SearchCourse((60.0, 600.0, 900.0), (None, 0.9, 0.9), (2.0, 1.0, 1.0), (2.2, 1.5, 1.2))
ANSWER = SearchSimulation("$loss", True, "epochs", "auto", 4, RUN, 9, 0, (RUN, RUN), COURSE)


def test_picture_needs_matplotlib_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ClientError, match=r"--plot needs matplotlib, .*pip install 'trainmaster\[plot\]'"):
        check_picture(tmp_path / "out.png")


def test_other_kinds_of_files_are_refused() -> None:
    with pytest.raises(UsageError, match=r"ends in \.png, \.svg, \.pdf, not 'out\.gif'"):
        check_picture(Path("out.gif"))


@pytest.mark.parametrize(("name", "start"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.PDF", b"%PDF")])
def test_picture_is_written_by_its_ending(tmp_path: Path, name: str, start: bytes) -> None:
    draw(ANSWER, tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(start)
    with pytest.raises(ClientError, match="cannot be written: No such file"):
        draw(ANSWER, tmp_path / "nowhere" / name)
