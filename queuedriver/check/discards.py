"""`discarded/` as it is: documents, their reports, and reports that have not got their names."""

import re

import msgspec

from queuedriver.check.shelves import Shelves
from queuedriver.disk.filesystem import Directory
from queuedriver.format import names
from queuedriver.format.records import Report, hidden_report, read_record

_TOKEN = re.compile(re.escape(hidden_report("TOKEN")).replace("TOKEN", "(?P<token>.+)"))
_DOCUMENT, _REPORT = 1, 2


class Hidden(msgspec.Struct, frozen=True):
    """A report that waits for its document, whose docid it tells; "" of one that is damaged."""

    token: str
    docid: str
    age: float


class Discards:
    """What one listing showed."""

    def __init__(self, shelves: Shelves) -> None:
        self.hidden: list[Hidden] = []
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
        for name, age in shelves.listed(directory, names.DISCARDED):
            if found := _TOKEN.fullmatch(name):
                report = read_record(directory, name, Report)
                docid = report.docid if report is not None else ""
                self.hidden.append(Hidden(found["token"], docid, age))
            elif name[0] == ".":
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
        """Documents that no report is of, not even a hidden one."""
        hidden = {self.beside(one) for one in self.hidden}
        return [
            docid
            for docid, what in self._single.items()
            if what == _DOCUMENT and docid not in hidden
        ]

    def beside(self, hidden: Hidden) -> str:
        """The docid under which its document is there, and has no other report; "" if it is not."""
        if not hidden.docid:
            return ""
        second = names.second_docid(hidden.docid, hidden.token)
        return next((x for x in (second, hidden.docid) if self._single.get(x) == _DOCUMENT), "")
