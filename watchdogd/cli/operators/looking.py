"""The process that looks at a pipeline for the page: one question at a time, one answer each.

    python -m watchdogd.cli.operators.looking FILE FD

It may hang for as long as a file system does, where not even SIGKILL reaches it; so nobody waits
for it longer than they like (`web/snapshot.py`). It ends when nobody asks any more.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from msgspec.structs import replace

from queuedriver.claims.liveness import Observer
from queuedriver.errors import ConfigError, NotFound, QueueError
from queuedriver.format.units import parse_duration
from watchdogd.cli.pipeline_argument import choose
from watchdogd.operators import actions, batches, causes, history
from watchdogd.operators.batches import Batch, Outcome
from watchdogd.operators.causes import Survey, Wanted
from watchdogd.operators.hosts import Chosen, no_answer
from watchdogd.operators.log_files import Piece, read_piece, recent_events, stacks_of
from watchdogd.operators.route import follow
from watchdogd.operators.textfile import exposition_of
from watchdogd.operators.view import SeenDriver, SeenStage, View, look
from watchdogd.operators.web.page_inputs import Answer, Listed, Past, Question, Seen, parts_of

_DAY = 86_400.0
# What needs nothing of the root: logs are on this host then, or are not read.
_WHILE_HUNG = ("look", "metrics", "piece", "stacks")
# So many are shown, the newest.
_MOST_EVENTS, _MOST_BATCHES = 500, 50
# Of documents that are to be tried again so many are named; and so many choices are remembered.
_NAMED, _MOST_LISTED = 20, 20


_Answers = Mapping[str, Callable[..., object]]


def run(fd: int, choose: Callable[[], Chosen]) -> None:
    """Answer questions that come through a socket, until its other end is closed."""
    # Ctrl-C in the terminal is for whoever asks; then this socket is closed.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # No file system that somebody wants to unmount is to be held.
    os.chdir("/")
    looking = Looking(choose)
    with Connection(fd) as asked:
        while True:
            try:
                number, question = asked.recv()
                for part in parts_of(looking.answer(question)):
                    asked.send((number, part))
            except (EOFError, ConnectionError):
                return


class Looking:
    """A pipeline that is looked at again and again, chosen anew each time."""

    def __init__(self, choose: Callable[[], Chosen]) -> None:
        self._choose = choose
        self._observer = Observer()
        # The last look, which a scraper is told of, too.
        self._view: View | None = None
        # What was listed to be tried again and waits for a yes, the latest, by its id.
        self._listed: dict[str, Batch] = {}
        self._answers: _Answers = {
            **_ANSWERS,
            **{"look": self._look, "metrics": self._metrics},
            **{"prepare": self._prepare, "put_back": self._put_back},
        }

    def answer(self, question: Question) -> Answer:
        """Answer a question about the pipeline that is chosen by now."""
        try:
            chosen = self._choose()
            if chosen.hung and question.kind not in _WHILE_HUNG:
                raise no_answer(chosen.given)
            return Answer(self._answers[question.kind](chosen, **question.words))
        except (NotFound, FileNotFoundError) as error:
            return Answer(error=str(error), status=404)
        except (QueueError, OSError) as error:
            return Answer(error=str(error), status=503)

    def _look(self, chosen: Chosen) -> Seen:
        began_at = time.monotonic()
        self._view = view = look(chosen, self._observer)
        trends = {} if view.chosen.hung else history.trends(view)
        # What watchdogs say of drivers and stages is in the view already.
        hosts = view.chosen.hosts
        seen = (
            one._replace(report=replace(one.report, drivers=(), stages=())) for one in hosts.seen
        )
        shown = view.chosen._replace(hosts=hosts._replace(seen=tuple(seen), ended=()))
        return Seen(replace(view, chosen=shown), trends, time.monotonic() - began_at)

    def _metrics(self, chosen: Chosen, accept: str) -> tuple[bytes, str]:
        """Return what a scraper is told of the last look."""
        view = self._view or look(chosen, self._observer)
        seen = view.chosen._replace(hung=chosen.hung)
        try:
            return exposition_of(replace(view, chosen=seen), accept)
        except ConfigError as error:
            # Who asks is not to take what is not installed for files that hang.
            raise NotFound(str(error)) from None

    def _prepare(self, chosen: Chosen, who: str, stage: str = "", **words: str) -> Listed:
        """List the discarded documents that are meant, to be tried again; NotFound for none."""
        found = _discarded(chosen, stage, **words).cases
        if not found:
            raise NotFound("none of these documents is discarded any more")
        where = f"stage {stage}" if stage else "all stages"
        asked = f"of {where}{_wanted(**words).words}"
        batch = batches.of_cases(found, who, asked, time.time())
        self._listed[batch.id] = batch
        for old in list(self._listed)[:-_MOST_LISTED]:
            del self._listed[old]
        return _shown(batch)

    def _put_back(
        self, chosen: Chosen, who: str, id: str = "", count: int | None = None
    ) -> Listed | None:
        """Put the documents of a batch back, once; or return them where their number is wrong."""
        batch = self._listed.get(id)
        if batch is None:
            with suppress(NotFound):
                batches.read(chosen.pipeline.root, id)
                return None
            raise NotFound("these documents were listed too long ago; list them anew")
        listed = _shown(batch)
        if listed.asks and count != listed.total:
            return listed
        # Whoever says yes did it, not who listed them.
        actions.put_back(chosen, replace(batch, who=who))
        del self._listed[id]
        return None


def _shown(batch: Batch) -> Listed:
    return Listed(replace(batch, documents=batch.documents[:_NAMED]), len(batch.documents))


def _wanted(since: str = "", **words: str) -> Wanted:
    """Return the choice that the words of an address name; `since` is as `2h` has it."""
    return Wanted(**words, since=parse_duration(since) if since else None)


def _discarded(chosen: Chosen, stage: str = "", **words: str) -> Survey:
    """Read what was discarded, and is as asked for."""
    return causes.survey(chosen.pipeline, actions.stages_of(chosen, stage), _wanted(**words))


def _piece(chosen: Chosen, driver: SeenDriver, file: int = 0, **words: Any) -> Piece:
    return read_piece(chosen, driver.host, driver.name, words.get("from"), file)


def _batch(chosen: Chosen, id: str = "") -> tuple[Batch, Outcome]:
    batch = batches.read(chosen.pipeline.root, id)
    return batch, batches.outcome(chosen.pipeline, batch)


def _history(chosen: Chosen, stage: SeenStage, **_: str) -> Past:
    """Return the last day of a stage, and the one before."""
    until, step = time.time(), history.COARSE
    moments = history.read(chosen.pipeline.root, stage.name, until - 2 * _DAY, until, step)
    return Past(until, [one for one in moments if one is not None])


# What else may be asked; each gets the pipeline and the words of the question.
_ANSWERS: _Answers = {
    "trace": lambda chosen, d="": follow(chosen, d),
    "piece": _piece,
    "events": lambda chosen: recent_events(chosen, _MOST_EVENTS),
    "survey": _discarded,
    "batch": _batch,
    "batches": lambda chosen: list(batches.latest(chosen.pipeline.root, _MOST_BATCHES)),
    "history": _history,
    "act": lambda chosen, asked, who, **_: actions.carry_out(chosen, [asked], who),
    "stacks": lambda chosen, driver, **_: stacks_of(chosen, driver.host, driver.name),
}


if __name__ == "__main__":
    file, fd = sys.argv[1:]
    run(int(fd), lambda: choose(file, hung_too=True))
