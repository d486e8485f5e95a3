"""`client`: bring files to a broker, and take back what comes of them."""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from typing import Annotated, Any

from queuedriver.cli import say
from queuedriver.cli.settings import rows_of, settings_of
from queuedriver.disk.filesystem import Directory
from queuedriver.doors.conversation import Conversation, sleep
from queuedriver.doors.roundrobin import settings as of_roundrobin
from queuedriver.doors.scale0 import settings as of_scale0
from queuedriver.doors.settings import AnyClient
from queuedriver.doors.transports.addresses import need_zmq, own_name
from queuedriver.doors.transports.base import Transport
from queuedriver.doors.words import ClientSession, Effect, Ended, Result
from queuedriver.errors import BadArgument, CannotUse, NotFound, Unreachable
from queuedriver.format import names


def client_roundrobin(**told: Annotated[Any, *rows_of(of_roundrobin.ClientSettings)]) -> int:
    """Bring files to a broker, or to a plain server, and take back what comes of them.

    A request without an answer is sent again under its id: a broker does it once.

    \b
    exit 0   all were answered, and well
         1   some were not, or not all of an answer could be written: each is named
         66  a file cannot be read: nothing was asked
         69  no broker answers
         73  an answer's file is there already
    """
    asked = settings_of(of_roundrobin.ClientSettings, told)
    if asked.console:
        need_zmq()
        from queuedriver.doors.roundrobin.console import ClientConsole

        return ClientConsole(asked).run()
    return _ask(asked)


def client_scale0(**told: Annotated[Any, *rows_of(of_scale0.ClientSettings)]) -> int:
    """Bring files to a service of a broker, and take back what comes of them.

    A request without an answer is sent again under its id: a broker does it once.

    \b
    exit 0   all were answered, and well
         1   some were not, or not all of an answer could be written: each is named
         66  a file cannot be read: nothing was asked
         69  no broker answers
         73  an answer's file is there already
    """
    return _ask(settings_of(of_scale0.ClientSettings, told))


def _ask(asked: AnyClient) -> int:
    """Bring files and write down the answers; return the exit code."""
    with closing(asked.transport(own_name())) as transport:
        for path in asked.files:
            if os.path.isdir(path) or not os.access(path, os.R_OK):
                raise NotFound(f"{path!r} is no file that can be read; nothing was asked")
        if asked.to is not None:
            _check_answers(asked.files, asked.to)
        documents = _documents(asked.files, asked.max_message)
        ends = bring(documents, asked.session(), transport, asked.parallel, say)
        return collect(ends, asked.to)


def _check_answers(files: Sequence[str], to: str) -> None:
    """Refuse to ask for what could not be written down; CannotUse, BadArgument."""
    taken = set()
    for path in files:
        name = os.path.basename(path)
        if name in taken:
            raise BadArgument(
                f"two of the files are called {name!r}, and so would their answers; ask for one of "
                "them alone, with another --to"
            )
        taken.add(name)
        place = os.path.join(to, name)
        if os.path.lexists(place):
            raise CannotUse(
                f"{place!r} is there already, and no answer is written over a file; move it, or "
                "name another --to"
            )


def _documents(files: Sequence[str], most: int) -> Iterator[tuple[str, bytes]]:
    """Yield each file's name and what is in it."""
    for path in files:
        try:
            with open(path, "rb") as file:
                data = file.read(most + 1)
        except OSError as error:
            raise NotFound(f"{path!r} cannot be read: {error.strerror}") from None
        if len(data) > most:
            raise BadArgument(f"{path!r} is larger than --max-message")
        yield os.path.basename(path), data


def bring(
    documents: Iterable[tuple[str, bytes]],
    session: ClientSession,
    transport: Transport,
    parallel: int,
    say: Callable[[str], None],
) -> Iterator[tuple[str, Ended]]:
    """Yield each document's name and what became of its request, in the order in which they end,
    with so many of them under way at once. Unreachable when there is nobody to ask any more."""
    # Documents' names, by the ids of their requests.
    asked: dict[bytes, str] = {}
    ended: list[tuple[str, Ended]] = []

    def act(effect: Effect) -> None:
        if isinstance(effect, Ended) and (name := asked.pop(effect.id, None)) is not None:
            ended.append((name, effect))

    talk, left = Conversation(session, transport, act, say), iter(documents)
    while True:
        while len(asked) < parallel and (document := next(left, None)) is not None:
            name, payload = document
            now = time.monotonic()
            docid = name if names.objection(name) is None else "document"
            id, effects = session.ask(docid, payload, now)
            asked[id] = name
            talk.carry_out(effects, now)
        if not asked:
            return
        sleep([talk])
        talk.turn(time.monotonic(), time.time())
        told, ended[:] = ended[:], []
        yield from told
        if missing := any(one.why for _, one in told) and transport.missing():
            raise Unreachable(missing)


def collect(ends: Iterator[tuple[str, Ended]], to: str | None) -> int:
    """Write answers down as they come; return the exit code."""
    failed = 0
    with ExitStack() as at_end:
        directory = (
            at_end.enter_context(Directory.open(to, create=True)) if to is not None else None
        )
        for name, ended in ends:
            why = ended.why
            if not why and to is not None and directory is not None:
                if lost := write_results(directory, to, name, ended.results):
                    why = f"not all of its answer is kept: {lost}"
            elif not why:
                for result in ended.results:
                    sys.stdout.buffer.write(result.data)
            if why:
                failed += 1
                say(f"{name!r}: {why}")
    sys.stdout.buffer.flush()
    return 1 if failed else 0


def write_results(directory: Directory, to: str, name: str, results: Sequence[Result]) -> str:
    """Write results into files of a directory, which people call `to`, each as a whole, and none
    over one that is there; return why not all of them are, or nothing.

    One result without a name gets the document's; a name that came by the network is no path.
    """
    for result in results:
        wanted = name if result.name is None else result.name
        if (objection := names.objection(wanted)) is not None:
            return f"it names a file {wanted!r}, which is refused: {objection}"
        path = os.path.join(to, wanted)
        try:
            directory.write_first(wanted, result.data)
        except FileExistsError:
            return f"{path!r} is there already"
        except OSError as error:
            return f"{path!r} cannot be written: {error.strerror}; mend that, and ask again"
    return ""
