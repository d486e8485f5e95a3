"""`put`: submit files. All complaints about them are made before any of them is touched."""

import errno
import os
import socket
import stat
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Self

from queuedriver.cli import describe, say, say_some
from queuedriver.cli.arguments import AS_JSON, QUEUE, lines_of, warn_of
from queuedriver.cli.words import argument, flag, option
from queuedriver.disk.filesystem import Directory
from queuedriver.disk.journal import Journal, journal_path, submitter
from queuedriver.errors import (
    AlreadyThere,
    BadArgument,
    NotFound,
    NotPermitted,
    QueueError,
    is_trouble,
    trouble,
)
from queuedriver.format import names
from queuedriver.operating.queue import Queue, Submission, Submitted, entering_name, opened

_SOME_FAILED = 1


def put(
    queue: str = QUEUE,
    files: list[str] | None = argument(
        "[FILE]...", "What to submit; - is stdin, and needs --docid."
    ),
    docid: str | None = option("ID", "Its docid, instead of the file's name."),
    files_from: str | None = option("LIST", "Submit the files that are named in LIST, too."),
    null: bool = flag("Names in LIST end with NUL.", "-0"),
    move: bool = flag("Take the files away once they are in the queue."),
    replace: bool = flag("Replace what waits under the same docid."),
    skip_bad: bool = flag("Name what cannot be submitted, and submit the rest."),
    after: float | None = option("TIME", "Not to be tried before, as in 10min."),
    reopen: bool = flag("Go on with a queue that was closed."),
    durable: bool = flag("Make them survive a power cut before this returns.", default=True),
    as_json: bool = AS_JSON,
) -> int:
    """Submit files to a queue.

    Each is written aside, made durable, and renamed in, so that no driver ever sees half of one.
    Its docid is the file's name unless --docid says otherwise. When anything is wrong with the
    arguments, it is said, and nothing is submitted; with --skip-bad the rest is (exit code 1).
    What waits already is never overwritten: such files are named at the end (exit code 73), and
    the others are in.
    """
    listed = [] if files_from is None else lines_of(files_from, b"\0" if null else b"\n")
    if null and files_from is None:
        raise BadArgument("-0 is for the names in a list: say which, with --files-from LIST")
    bad: list[QueueError] = []
    named = [*(files or []), *listed]
    if "-" in (files or ()):
        sources = _stdin(docid, named, move)
    else:
        sources, bad = _sound(named, docid, move)
    if bad:
        say_some([str(one) for one in bad], "file")
        if not skip_bad:
            try:
                Queue.open(queue).close()
            except QueueError as error:
                say(str(error))
            return bad[0].exit_code
    due = None if after is None else time.time() + after
    with opened(queue) as into:
        into.check_open(reopen)
        warn_of(into)
        terms = Submission(into.directory, into.incoming, replace, durable, due)
        with Submitting(into, terms, len(sources) + len(bad), as_json) as submitting:
            if move:
                submitting.move(sources)
            else:
                submitting.copy(sources)
        # After they are in: until then the last driver may still leave.
        if (notice := into.notice()) and not into.any_driver():
            say(f"{into.path}: no driver is alive; {notice}")
        return submitting.report_refusals() or (_SOME_FAILED if bad else 0)


def _stdin(docid: str | None, files: Sequence[str], move: bool) -> dict[str, str]:
    if files != ["-"] or move or docid is None:
        raise BadArgument("stdin is one document: it needs --docid, and neither FILE nor --move")
    if sys.stdin is None:
        raise BadArgument("-: there is no standard input")
    return {names.check_docid(docid): ""}


def _sound(
    files: Sequence[str], docid: str | None, move: bool
) -> tuple[dict[str, str], list[QueueError]]:
    """Return the files that can be submitted, and what is wrong with each other one, before any of
    them is touched."""
    if not files:
        raise BadArgument("nothing to submit: name a FILE, or - for what comes on stdin")
    if docid is not None and len(files) > 1:
        raise BadArgument("--docid is for one FILE; the names of several are their docids")
    sound: dict[str, str] = {}
    bad = []
    for path in files:
        name = os.path.basename(path) if docid is None else docid
        try:
            check_file(path)
            names.check_docid(name)
            if first := sound.get(name):
                raise BadArgument(f"{first!r} and {path!r} would both be {name!r}; submit one")
            if move and not os.access(os.path.dirname(path) or ".", os.W_OK | os.X_OK):
                raise NotPermitted(f"{path!r} cannot be taken away: its directory is not writable")
            sound[name] = path
        except QueueError as error:
            bad.append(error)
    return sound, bad


def check_file(path: str | os.PathLike[str]) -> None:
    """Raise NotFound, NotPermitted or BadArgument for what cannot be submitted."""
    shown = repr(os.fspath(path))
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            raise BadArgument(f"{shown} is a directory; submit the files in it")
        if not stat.S_ISREG(mode):
            # To open a FIFO is to wait for its writer.
            raise BadArgument(f"{shown} is not a regular file; submit what it gives with -")
        with open(path, "rb"):
            pass
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"no file {shown}") from None
    except PermissionError:
        raise NotPermitted(f"{shown} may not be read: permission denied") from None
    except OSError as error:
        if is_trouble(error):
            raise trouble(error, "reading") from None
        raise BadArgument(f"{shown} cannot be read: {error.strerror}") from None


class Submitting:
    """Submits to one queue, and remembers what became of each. Sources are paths by the docids that
    they are to have; an empty one is standard input."""

    def __init__(self, queue: Queue, terms: Submission, wanted: int, as_json: bool) -> None:
        host = socket.gethostname()
        self._queue = queue
        self._terms = terms
        # How many were to be submitted.
        self._wanted = wanted
        self._as_json = as_json
        self._journal = Journal(journal_path(queue.path), submitter(host), host)
        self._entered: list[Submitted] = []
        # Docids that wait in the queue already.
        self._refused: list[str] = []
        # Files that are in the queue, but where they came from too; in words.
        self._left: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, OSError):
            self._say_how_many()
        self._journal.close()
        if self._journal.unnoted:
            say(self._journal.unnoted)
        if self._as_json:
            from queuedriver.cli.render import write_json

            submitted = [{"docid": one.docid, "name": one.name} for one in self._entered]
            write_json({"submitted": submitted, "refused": self._refused})

    def copy(self, sources: Mapping[str, str]) -> None:
        """Submit copies."""
        documents = [(docid, path or sys.stdin.buffer) for docid, path in sources.items()]
        try:
            for one in self._terms.many(documents):
                self._note(one, sources[one.docid])
        except AlreadyThere as error:
            self._refused += error.docids

    def move(self, sources: Mapping[str, str]) -> None:
        """Submit the files themselves: with one rename where they are on the queue's file system,
        so that each is always either here or there."""
        device = self._queue.directory.status().st_dev
        ours = {docid: path for docid, path in sources.items() if _can_rename(path, device)}
        others = {docid: path for docid, path in sources.items() if docid not in ours}
        copied = others | self._rename(ours)
        self.copy(copied)
        for path in [copied[one.docid] for one in self._entered if one.docid in copied]:
            try:
                os.unlink(path)
            except OSError as error:
                why = describe(error)
                self._left.append(f"{path!r} is in the queue, but could not be taken away: {why}")

    def report_refusals(self) -> int:
        """Say what is not as it was wanted; return the exit code."""
        path = self._queue.path
        where = f"waits in {path} already; use --replace, or another docid"
        say_some([f"{docid!r} {where}" for docid in self._refused], "document")
        say_some(self._left, "file")
        closed = self._queue.controls().done
        if closed:
            say(f"{path} was closed meanwhile; queuedriver reopen {path} goes on with it")
        if len(self._entered) < self._wanted:
            self._say_how_many()
        if self._refused or closed:
            return AlreadyThere.exit_code
        return NotPermitted.exit_code if self._left else 0

    def _say_how_many(self) -> None:
        if self._entered:
            say(f"{len(self._entered):,} of {self._wanted:,} documents were submitted")

    def _note(self, one: Submitted, path: str) -> None:
        self._entered.append(one)
        origin = os.path.abspath(path) if path else "standard input"
        self._journal.note("submitted", one.docid, message=f"from {origin}")
        self._journal.flush_if_due(time.monotonic())

    def _rename(self, sources: Mapping[str, str]) -> dict[str, str]:
        """Rename files in; return those that take a copy after all."""
        target = self._queue.directory
        rename = target.rename_over if self._terms.replace else target.rename_new
        paths = {docid: os.path.abspath(path) for docid, path in sources.items()}
        if self._terms.durable:
            # Before they have names in the queue.
            target.sync_files(paths.values())
        across = {}
        for docid, path in paths.items():
            final = entering_name(docid, self._terms.due)
            try:
                # One that is not there is nobody's lost reply: anybody may have taken it away.
                rename(path, final)
                self._note(Submitted(docid, final), path)
            except FileExistsError:
                self._refused.append(docid)
            except OSError as error:
                # A bind mount is another file system to a rename, though not by its number.
                if error.errno != errno.EXDEV:
                    raise
                across[docid] = sources[docid]
        if self._terms.durable and sources:
            target.sync()
            for parent in set(map(os.path.dirname, paths.values())):
                with Directory.open(parent) as directory:
                    directory.sync()
        return across


def _can_rename(path: str, device: int) -> bool:
    """Return whether a rename within this file system takes the file and leaves nothing of it."""
    found = os.lstat(path)
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_dev == device
