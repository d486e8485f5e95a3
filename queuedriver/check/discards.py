"""`discarded/` as it is: documents and their reports."""

from queuedriver.check.shelves import Shelves
from queuedriver.disk.filesystem import Directory
from queuedriver.format import names
from queuedriver.format.records import Report, read_record

_DOCUMENT, _REPORT = 1, 2


class Discards:
    """What one listing showed."""

    def __init__(self, shelves: Shelves) -> None:
        # Documents and reports that have not got each other.
        self._single: dict[str, int] = {}
        self._damaged: set[str] = set()
        directory = shelves.open(names.DISCARDED)
        if directory is not None:
            try:
                self._read(directory, shelves)
            finally:
                directory.close()

    def _read(self, directory: Directory, shelves: Shelves) -> None:
        for name, _ in shelves.listed(directory, names.DISCARDED):
            if name[0] == ".":
                continue
            elif name.endswith(names.REPORT):
                docid = name.removesuffix(names.REPORT)
                self._see(docid, _REPORT)
                if read_record(directory, name, Report) is None:
                    self._damaged.add(docid)
            else:
                self._see(name, _DOCUMENT)

    def _see(self, docid: str, what: int) -> None:
        if self._single.setdefault(docid, what) != what:
            del self._single[docid]

    def damaged(self) -> list[str]:
        """Documents whose reports cannot be read."""
        return sorted(docid for docid in self._damaged if docid not in self._single)

    def lone_reports(self) -> list[str]:
        return [docid for docid, what in self._single.items() if what == _REPORT]

    def unreported(self) -> list[str]:
        """Documents that no report is beside."""
        return [docid for docid, what in self._single.items() if what == _DOCUMENT]
