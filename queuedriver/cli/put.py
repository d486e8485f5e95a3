"""`put`: submit files. All complaints about them are made before any of them is touched."""

import os
import stat
import time
from collections.abc import Sequence
from typing import Annotated

from queuedriver.cli import say
from queuedriver.cli.arguments import duration, opened
from queuedriver.cli.intake import Intake, Source, Terms
from queuedriver.cli.words import Argument, Option
from queuedriver.errors import BadArgument, NotFound, NotPermitted, QueueError, is_trouble, trouble
from queuedriver.format import names

# No path has a NUL in it.
_STDIN = "\0"


_Queue = Annotated[str, Argument(metavar="QUEUE", help="The queue's directory.")]
_Files = Annotated[list[str] | None, Argument(metavar="[FILE]...", help="What to submit.")]
_Docid = Annotated[str | None, Option(metavar="ID", help="Its docid, instead of the file's name.")]
_Stdin = Annotated[bool, Option("--stdin", help="Submit what comes on stdin; needs --docid.")]
_Move = Annotated[bool, Option("--move", help="Take the files away once they are in the queue.")]
_Replace = Annotated[bool, Option("--replace", help="Replace what waits under the same docid.")]
_After = Annotated[str | None, Option(metavar="TIME", help="Not to be tried before, as in 10min.")]
_Reopen = Annotated[bool, Option("--reopen", help="Go on with a queue that was closed.")]
_Durable = Annotated[bool, Option(help="Make them survive a power cut before this returns.")]
_Json = Annotated[bool, Option("--json", help="Print what entered.")]


def put(
    queue: _Queue,
    files: _Files = None,
    docid: _Docid = None,
    stdin: _Stdin = False,
    move: _Move = False,
    replace: _Replace = False,
    after: _After = None,
    reopen: _Reopen = False,
    durable: _Durable = True,
    as_json: _Json = False,
) -> int:
    """Submit files to a queue.

    Each is written aside, made durable, and renamed in, so that no driver ever sees half of one.
    Its docid is the file's name unless --docid says otherwise. When anything is wrong with the
    arguments, all of it is said, and nothing is submitted. What waits already is never
    overwritten: such files are named at the end (exit code 73), and the others are in.
    """
    due = None if after is None else time.time() + duration("--after", after)
    sources = _stdin(docid, files or [], move) if stdin else _files(files or [], docid)
    if complaints := _complaints(sources, move):
        for complaint in [*complaints, *_complaints_about(queue)]:
            say(str(complaint))
        return complaints[0].exit_code
    with opened(queue) as into:
        into.check_open(reopen)
        intake = Intake(into, Terms(replace, durable, due))
        try:
            if stdin:
                intake.read(sources[0].docid)
            elif move:
                intake.move(sources)
            else:
                intake.copy(sources)
        except OSError:
            intake.say_how_many(len(sources))
            raise
        finally:
            intake.close()
            if as_json:
                intake.print_json()
    return intake.exit_code(len(sources))


def _stdin(docid: str | None, files: Sequence[str], move: bool) -> list[Source]:
    if files or move or docid is None:
        raise BadArgument("--stdin is one document: it needs --docid, and neither FILE nor --move")
    return [Source(_STDIN, docid)]


def _files(files: Sequence[str], docid: str | None) -> list[Source]:
    if not files:
        raise BadArgument("nothing to submit: name a FILE, or use --stdin")
    if docid is None:
        return [Source(path, os.path.basename(path)) for path in files]
    if len(files) > 1:
        raise BadArgument("--docid is for one FILE; the names of several are their docids")
    return [Source(files[0], docid)]


def _complaints(sources: Sequence[Source], move: bool) -> list[QueueError]:
    """Everything that is wrong with the files, before any of them is touched."""
    complaints = []
    docids: dict[str, str] = {}
    for path, docid in sources:
        try:
            if path != _STDIN:
                check_file(path)
            names.check_docid(docid)
            first = docids.setdefault(docid, path)
            if first is not path:
                raise BadArgument(f"{first!r} and {path!r} would both be {docid!r}; submit one")
            if move and not os.access(os.path.dirname(path) or ".", os.W_OK | os.X_OK):
                raise NotPermitted(f"{path!r} cannot be taken away: its directory is not writable")
        except QueueError as error:
            complaints.append(error)
    return complaints


def _complaints_about(queue: str) -> list[QueueError]:
    try:
        with opened(queue):
            return []
    except QueueError as error:
        return [error]


def check_file(path: str | os.PathLike[str]) -> None:
    """NotFound, NotPermitted or BadArgument for what cannot be submitted."""
    shown = repr(os.fspath(path))
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            raise BadArgument(f"{shown} is a directory; submit the files in it")
        if not stat.S_ISREG(mode):
            # To open a FIFO is to wait for its writer.
            raise BadArgument(f"{shown} is not a regular file; submit what it gives with --stdin")
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
