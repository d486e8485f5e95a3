"""`logs`: what drivers print, on this host and on others; its end, and what comes after."""

import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from io import FileIO

from queuedriver.cli.program import say
from queuedriver.cli.render import escape, escape_name, write_json
from queuedriver.cli.words import argument, flag, option
from queuedriver.disk.filesystem import regular_size
from queuedriver.errors import BadArgument, NotFound
from watchdogd.cli.arguments import PIPELINE_FILE
from watchdogd.cli.pipeline_argument import Target, check_host, choose, targets
from watchdogd.operators.log_files import LOG, READ, has_text, listed, places_of

_FOLLOW_EVERY = 0.25
# How often one looks for drivers that have started since.
_LIST_EVERY = 1.0
_BLOCK = 64 * 1024
# A line longer than this is shown in parts: a log may be one binary line.
_MAX_LINE = 1 << 20
# The end of a log that lines are looked for in, in bytes: more than a terminal is good for.
_MOST = 16 << 20
# The lines at the end of a log in which a text is looked for.
_SEARCHED = 10_000
# No log is kept in more files.
_MAX_KEPT = 1000


# A host, a stage of its, a slot of that (0 is what loads for all of them), and the name of the log.
Whose = tuple[str, str, int, str]


def logs(
    what: list[str] | None = argument(
        "[STAGE|DRIVER]...", "A stage, or a driver as in parse-2; else all."
    ),
    follow: bool = flag("Go on as more is printed; Ctrl-C ends it.", "--follow", "-f"),
    lines: int = option("N", "How many lines of each driver.", "--lines", "-n", default=20),
    host: str | None = option("HOST", "Only of this host."),
    text: str = option("TEXT", "Only lines with this, in capitals or not.", default=""),
    as_json: bool = flag("Print JSON, one a line.", "--json"),
    pipeline: str | None = PIPELINE_FILE,
) -> None:
    """Show what drivers print.

    Those of other hosts are copies that their watchdogs make every few seconds. What the watchdogs
    of Slurm's elements print themselves is shown as of the host slurm.
    """
    if lines < 0:
        raise BadArgument(f"-n {lines}: how many lines cannot be less than none")
    chosen = choose(pipeline, hung_too=True)
    places = places_of(chosen)
    if host is not None:
        check_host(chosen, host, places)
        places = {name: path for name, path in places.items() if name == host}
    shown = _Shown(places, targets(chosen, what or (), host), text, as_json=as_json)
    try:
        shown.find()
        if not shown.tails and not follow:
            where = ", ".join(map(escape_name, places.values())) or "any place known here"
            raise NotFound(f"no such log in {where}; there is one once a driver has started")
        for whose in sorted(shown.tails):
            last = shown.tails[whose].last(max(lines, _SEARCHED) if text else lines)
            found = [line for line in last if has_text(line, text)]
            shown.print(whose, found[max(0, len(found) - lines) :])
        if follow:
            if not shown.tails:
                say("no log yet; waiting for a driver to start")
            shown.follow()
    finally:
        for tail in shown.tails.values():
            tail.close()


class _Shown:
    """The logs that are shown, and which line is whose."""

    def __init__(
        self, places: Mapping[str, str], targets: Sequence[Target], text: str, *, as_json: bool
    ) -> None:
        self.tails: dict[Whose, Tail] = {}
        self._places = places
        self._targets = targets
        self._text = text
        self._as_json = as_json
        # Where there can be but one driver: a prefix that comes and goes would puzzle.
        one = targets[0] if len(targets) == 1 else None
        self._alone = bool(one and one.driver and (one.host or len(places) <= 1))
        # On a terminal nothing in a line may steer it; a file gets the bytes as they are.
        self._terminal = sys.stdout.isatty()

    def find(self) -> None:
        """Find the logs that are new."""
        for host, path in self._places.items():
            for name in listed(path):
                log = LOG.fullmatch(name)
                if log is None or not self._wanted(log["stage"], log["driver"], host):
                    continue
                whose = (host, log["stage"] or "", int(log["slot"] or 0), log["driver"])
                if whose not in self.tails:
                    self.tails[whose] = Tail(os.path.join(path, name))

    def _wanted(self, stage: str | None, driver: str, host: str) -> bool:
        return not self._targets or any(
            one.host in ("", host)
            and driver == (one.driver or driver)
            # A stage may be called as another one's driver is.
            and (bool(one.driver) or stage == one.stage.name)
            for one in self._targets
        )

    def follow(self) -> None:
        """Show what comes, until somebody has seen enough."""
        list_at = time.monotonic() + _LIST_EVERY
        while True:
            for whose, tail in self.tails.items():
                self.print(whose, tail.more())
            sys.stdout.flush()
            time.sleep(_FOLLOW_EVERY)
            if time.monotonic() >= list_at:
                list_at = time.monotonic() + _LIST_EVERY
                self.find()

    def print(self, whose: Whose, lines: Iterable[bytes]) -> None:
        host, *_, driver = whose
        # Names of files that others may have made, as any line may be.
        name = escape_name(f"{driver}@{host}" if len(self._places) > 1 else driver)
        prefix = "" if self._alone else f"{name} | "
        for line in lines:
            if not has_text(line, self._text):
                continue
            if self._as_json:
                text = line.decode(errors="surrogateescape")
                write_json({"host": host, "driver": driver, "line": text}, indent=None)
            elif self._terminal:
                print(prefix + escape(line.decode(errors="backslashreplace")))
            else:
                sys.stdout.buffer.write(prefix.encode() + line + b"\n")


# One log, across rotations


class Tail:
    """The end of a log, and what is appended to it: `<path>`, before it `<path>.1`, `<path>.2`…"""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file: FileIO | None = None
        # The beginning of a line whose end is not written yet.
        self._rest = b""

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def last(self, count: int) -> list[bytes]:
        """Return the last lines, of earlier files too when the latest has not as many; `more` goes
        on after them."""
        lines: list[bytes] = []
        for file in _kept(self.path):
            lines = _last_lines(file, count - len(lines)) + lines
            if self._file is None:
                self._file = file
            else:
                file.close()
            if len(lines) >= count:
                break
        return lines

    def more(self) -> Iterator[bytes]:
        """Yield the lines that were completed since."""
        newer: list[FileIO] = []
        for file in _kept(self.path):
            if self._file and os.path.sameopenfile(file.fileno(), self._file.fileno()):
                file.close()
                break
            newer.append(file)
        else:
            # Ours was deleted meanwhile: the others' age is unknown, but the newest goes on.
            for file in newer[1:]:
                file.close()
            del newer[1:]
        # First what was written between the last look and the rotation.
        yield from self._read()
        for file in reversed(newer):
            if self._rest:
                yield self._rest
            self.close()
            self._file, self._rest = file, b""
            yield from self._read()

    def _read(self) -> Iterator[bytes]:
        file = self._file
        if file is None:
            return
        if os.fstat(file.fileno()).st_size < file.tell():
            # Somebody emptied it.
            file.seek(0)
            self._rest = b""
        while data := file.read(_BLOCK):
            *lines, self._rest = (self._rest + data).split(b"\n")
            yield from lines
            if len(self._rest) > _MAX_LINE:
                yield self._rest
                self._rest = b""


def _kept(path: str) -> Iterator[FileIO]:
    """Yield the files of a log, open, from the newest on, as far as there are any. Where its copies
    are others may write, too: what is no file ends it."""
    seen: set[int] = set()
    for number in range(_MAX_KEPT):
        try:
            fd = os.open(f"{path}.{number}" if number else path, READ)
        except OSError:
            return
        inode = os.fstat(fd).st_ino
        if inode not in seen and regular_size(fd) is not None:
            seen.add(inode)
            yield FileIO(fd)
            continue
        os.close(fd)
        # One that was rotated meanwhile is the one that was read already.
        if inode not in seen:
            return


def _last_lines(file: FileIO, count: int) -> list[bytes]:
    """Return the last lines, without their ends, read from the end, where it then stands."""
    size, most, data = file.seek(0, os.SEEK_END), _BLOCK, b""
    with suppress(OSError):
        while len(data) < min(size, _MOST) and data.count(b"\n") <= count:
            data = os.pread(file.fileno(), min(most, size), max(0, size - most))
            most *= 2
    lines = data.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    return lines[-count:] if count > 0 else []
