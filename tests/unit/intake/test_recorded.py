"""What programs that cannot be had here do on the disk, as it was recorded: how long they take from
one step to the next, and what is there then. Nothing half enters, and what is whole does, once."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.intakes import Site

WHOLE = b"%PDF-1.4\n" + b"x" * 100 + b"\n%%EOF\n"
Step = tuple[float, Callable[[Path], object]]


class Recorded(NamedTuple):
    """Steps by how many seconds they come after the one before, and what is there at the end."""

    steps: tuple[Step, ...]
    # What the intake was told.
    told: dict[str, Any]
    # What enters, and what stays for ever.
    enters: tuple[str, ...]
    stays: tuple[str, ...] = ()


def write(name: str, data: bytes) -> Callable[[Path], object]:
    def act(folder: Path) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)

    return act


def rename(old: str, new: str) -> Callable[[Path], object]:
    return lambda folder: (folder / old).rename(folder / new)


def touch(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).touch()


def extend(name: str, size: int) -> Callable[[Path], object]:
    """Give a file its full size before its data: zeros."""
    return lambda folder: os.truncate(folder / name, size)


RECORDED = {
    # Explorer over SMB: full at once, data later, and the times move on while it copies.
    "Explorer": Recorded(
        (
            (0, write("a.pdf", b"")),
            (0, extend("a.pdf", len(WHOLE))),
            *((12.0, touch("a.pdf")) for _ in range(5)),
            (12.0, write("a.pdf", WHOLE)),
            (1.0, touch("a.pdf")),
        ),
        {},
        ("a.pdf",),
    ),
    # Finder over SMB: an empty file, and files of its own beside it.
    "Finder": Recorded(
        (
            (0, write("a.pdf", b"")),
            (0, write("._a.pdf", b"resources")),
            (0, write(".DS_Store", b"x")),
            (90.0, touch("a.pdf")),
            (200.0, write("a.pdf", WHOLE[:50])),
            (20.0, write("a.pdf", WHOLE)),
        ),
        {},
        ("a.pdf",),
        (".DS_Store", "._a.pdf"),
    ),
    # A scanner: a placeholder, then a page after minutes, and another one, each a whole PDF to
    # whoever counts pages; here the end is missing until the last.
    "scanner": Recorded(
        (
            (0, write("scan.pdf", b"")),
            (45.0, write("scan.pdf", WHOLE[:30])),
            (150.0, write("scan.pdf", WHOLE[:60])),
            (170.0, write("scan.pdf", WHOLE)),
        ),
        {"settle": 180.0, "complete": "pdf"},
        ("scan.pdf",),
    ),
    "Nextcloud": Recorded(
        (
            (0, write("a.pdf.ocTransferId123.part", WHOLE[:30])),
            (600.0, write("a.pdf.ocTransferId123.part", WHOLE)),
            (1.0, rename("a.pdf.ocTransferId123.part", "a.pdf")),
            (0, write("b.pdf.ocTransferId7.part", b"left for weeks")),
        ),
        {},
        ("a.pdf",),
        ("b.pdf.ocTransferId7.part",),
    ),
    "Chrome": Recorded(
        (
            (0, write("a.pdf.crdownload", WHOLE[:30])),
            (300.0, write("a.pdf.crdownload", WHOLE)),
            (0, rename("a.pdf.crdownload", "a.pdf")),
        ),
        {},
        ("a.pdf",),
    ),
    # An empty file under the final name, the data beside it, then the one over the other.
    "Firefox": Recorded(
        (
            (0, write("a.pdf", b"")),
            (0, write("a.pdf.part", WHOLE[:30])),
            (300.0, write("a.pdf.part", WHOLE)),
            (0, rename("a.pdf.part", "a.pdf")),
        ),
        {},
        ("a.pdf",),
    ),
    "Syncthing, Office and trash": Recorded(
        (
            (0, write(".syncthing.a.pdf.tmp", WHOLE[:30])),
            (0, write("~$a.docx", b"x")),
            (0, write("#recycle", b"x")),
            (300.0, rename(".syncthing.a.pdf.tmp", "a.pdf")),
            (0, write("a.pdf", WHOLE)),
        ),
        {},
        ("a.pdf",),
        ("#recycle", "~$a.docx"),
    ),
    # A stub of no bytes until it is closed, seen so by others for minutes.
    "s3fs": Recorded(((0, write("a.pdf", b"")), (240.0, write("a.pdf", WHOLE))), {}, ("a.pdf",)),
}


@pytest.mark.parametrize("name", RECORDED)
def test_nothing_half_enters_and_what_is_whole_enters_once(site: Site, name: str) -> None:
    recorded = RECORDED[name]
    # No lease tells of who writes on another host.
    intake = site.intake(leases=False, **{"settle": 30.0, **recorded.told})
    for seconds, act in recorded.steps:
        for _ in range(int(seconds)):
            site.now += 1.0
            intake.list_soon()
            intake.turn(site.now)
            assert set(site.entered.values()) <= {WHOLE}
        act(site.folder)
    for _ in range(40):
        site.turn(intake, seconds=60.0)
    assert site.entered == dict.fromkeys(recorded.enters, WHOLE)
    assert tuple(site.left) == recorded.stays
