"""A client: brings files to a broker (or to a plain server), and writes down what comes of them."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from queuedriver.disk.filesystem import Directory
from queuedriver.doors.conversation import Conversation, sleep
from queuedriver.doors.transports.base import Transport
from queuedriver.doors.words import ClientSession, Effect, Ended, Result
from queuedriver.errors import Unreachable
from queuedriver.format import names


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
