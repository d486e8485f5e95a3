"""The report as a file: saved by its watchdog on a local disk, copied by the helper to where all
hosts see it, and found by whoever looks while neither the root nor the pipeline's file answers.

    <local>/report.json                the report
    <local>/.report.json               the one before: the next is written over it
    <state>/files/<key>-<host>         a link to the local directory; the key is of the file's path

The path of the pipeline's file is only text here: to resolve a link in it could hang for ever.
"""

import contextlib
import os

from queuedriver.disk.filesystem import c_name, libc, open_fd, write_all
from queuedriver.format.records import encode
from watchdogd.control import host_file
from watchdogd.driver_ids import digits_of, state_directory
from watchdogd.report import Alien, HostReport, decode

_FILE = "report.json"
_FILES = "files"
_DIGITS = 16
# A report is padded to a multiple of so many bytes: the next one fits where it was.
_ROOM = 16 << 10
_HERE = -100
_EXCHANGE = 2


def save(report: HostReport) -> None:
    """Save a report, whole or not at all. It is written where the one before the last was, so that
    a full disk has room for it, and takes the place of the last in one moment."""
    path, aside = (os.path.join(report.local, name) for name in (_FILE, f".{_FILE}"))
    data = encode(report)
    # On a full disk, or one that fails, people know less; the drivers do not mind.
    with contextlib.suppress(OSError):
        # Somebody may have removed it.
        os.makedirs(report.local, mode=0o700, exist_ok=True)
        with open_fd(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)) as fd:
            write_all(fd, data.ljust(-(-len(data) // _ROOM) * _ROOM))
            os.ftruncate(fd, os.lseek(fd, 0, os.SEEK_CUR))
        exchange = getattr(libc(), "renameat2", None)
        # The first one has nothing to change places with; and some systems cannot do it.
        if exchange is None or exchange(_HERE, c_name(aside), _HERE, c_name(path), _EXCHANGE):
            os.replace(aside, path)


def read_saved(local: str) -> bytes:
    """Read the report of a local directory, without its padding."""
    path = os.path.join(local, _FILE)
    while True:
        with open(path, "rb") as file:
            before = os.fstat(file.fileno())
            data = file.read()
            after = os.fstat(file.fileno())
        # It may have been the spare one meanwhile.
        if os.stat(path).st_ino == after.st_ino and before.st_mtime_ns == after.st_mtime_ns:
            return data.rstrip()


def last_report(local: str) -> HostReport | None:
    """Return the latest report of a local directory; None where none is understood."""
    with contextlib.suppress(OSError, Alien):
        return decode(read_saved(local))
    return None


def note_file(file: str, host: str, local: str) -> None:
    """Note which local directory the watchdog of a pipeline's file has on this host."""
    directory = os.path.join(state_directory(), _FILES)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    link = os.path.join(directory, f"{digits_of(file, _DIGITS)}-{host_file(host)}")
    aside = f"{link}.{os.getpid()}"
    os.symlink(local, aside)
    os.replace(aside, link)


def local_reports(file: str) -> list[HostReport]:
    """Return what the watchdogs of a pipeline's file on this host say of themselves, whatever has
    become of their root. `file` is the absolute path by which they were given it."""
    return [one for one in _reports(f"{digits_of(file, _DIGITS)}-") if one.pipeline == file]


def known_files(directory: str) -> list[str]:
    """Return the pipelines' files in a directory that watchdogs of this host were given."""
    files = {one.pipeline for one in _reports()}
    return sorted(file for file in files if os.path.dirname(file) == directory)


def _reports(begins: str = "") -> list[HostReport]:
    """Return what watchdogs of this host say, of the files whose links begin like this."""
    directory = os.path.join(state_directory(), _FILES)
    with contextlib.suppress(FileNotFoundError):
        links = [name for name in sorted(os.listdir(directory)) if name.startswith(begins)]
        reports = [last_report(os.path.join(directory, link)) for link in links]
        return [one for one in reports if one is not None]
    return []
