"""`put`: submit files. All complaints about them are made before any of them is touched."""

import os
import stat
import sys
import time
from collections.abc import Sequence

from queuedriver.cli import say, say_some
from queuedriver.cli.arguments import AS_JSON, QUEUE, lines_of, warn_of
from queuedriver.cli.submitting import Submitting
from queuedriver.cli.words import argument, flag, option
from queuedriver.errors import BadArgument, NotFound, NotPermitted, QueueError, is_trouble, trouble
from queuedriver.format import names
from queuedriver.operating.queue import Queue, opened
from queuedriver.operating.submission import Submission

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
