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


class Client:
    """Requests, some of them under way at once."""

    def __init__(
        self,
        session: ClientSession,
        transport: Transport,
        parallel: int,
        say: Callable[[str], None],
    ) -> None:
        self._session = session
        self._talk = Conversation(session, transport, self._act, say)
        self._parallel = parallel
        # Documents' names, by the ids of their requests.
        self._asked: dict[bytes, str] = {}
        self._ended: list[tuple[str, Ended]] = []

    def run(self, documents: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, Ended]]:
        """Yield each document's name and what became of it, in the order in which they end."""
        for name, payload in documents:
            while len(self._asked) >= self._parallel:
                yield from self._converse()
            now = time.monotonic()
            docid = name if names.objection(name) is None else "document"
            id, effects = self._session.ask(docid, payload, now)
            self._asked[id] = name
            self._talk.carry_out(effects, now)
        while self._asked:
            yield from self._converse()

    def _converse(self) -> Iterator[tuple[str, Ended]]:
        """Wait for what comes next; yield what has ended. Unreachable when there is nobody to ask
        any more."""
        sleep([self._talk])
        self._talk.turn(time.monotonic(), time.time())
        ended, self._ended = self._ended, []
        yield from ended
        if missing := any(one.why for _, one in ended) and self._talk.transport.missing():
            raise Unreachable(missing)

    def _act(self, effect: Effect) -> None:
        if isinstance(effect, Ended) and (name := self._asked.pop(effect.id, None)) is not None:
            self._ended.append((name, effect))


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
