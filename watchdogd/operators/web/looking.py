"""The process that looks at a pipeline for the page: one question at a time, one answer each.

It may hang for as long as a file system does, where not even SIGKILL reaches it; so nobody waits
for it longer than they like (`snapshot.py`). It ends when nobody asks any more.
"""

import os
import signal
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection

from queuedriver.claims.liveness import Observer
from queuedriver.errors import NotFound, QueueError
from watchdogd.events import Event
from watchdogd.operators import batches, history
from watchdogd.operators.batches import Batch, Outcome
from watchdogd.operators.hosts import Chosen, no_answer
from watchdogd.operators.log_files import read_piece
from watchdogd.operators.oldest import oldest_waiting
from watchdogd.operators.recent_events import recent_events
from watchdogd.operators.route import follow
from watchdogd.operators.sentences import sentences_of, standing_line
from watchdogd.operators.stacks import stacks_of
from watchdogd.operators.view import look
from watchdogd.operators.web import actions
from watchdogd.operators.web.page_inputs import Answer, Past, Question, Seen

_DAY = 86_400.0
# What needs nothing of the root: logs are on this host then, or are not read.
_WHILE_HUNG = ("oldest", "piece", "stacks")
# So many are shown, the newest.
_MOST_EVENTS, _MOST_BATCHES = 500, 50


def run(fd: int, choose: Callable[[], Chosen]) -> None:
    """Answer questions that come through a socket, until its other end is closed."""
    # Ctrl-C in the terminal is for whoever asks; then this socket is closed.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # No file system that somebody wants to unmount is to be held.
    os.chdir("/")
    observer = Observer()
    with Connection(fd) as asked:
        while True:
            try:
                number, question = asked.recv()
                asked.send((number, answer(question, choose, observer)))
            except (EOFError, ConnectionError):
                return


def answer(question: Question, choose: Callable[[], Chosen], observer: Observer) -> Answer:
    """Answer a question about the pipeline that is chosen by now."""
    try:
        chosen = choose()
        if question.kind == "look":
            return Answer(_look(chosen, observer))
        if chosen.hung and question.kind not in _WHILE_HUNG:
            raise no_answer(chosen.given)
        return Answer(_ANSWERS[question.kind](chosen, **dict(question.words)))
    except (NotFound, FileNotFoundError) as error:
        return Answer(error=str(error), status=404)
    except (QueueError, OSError) as error:
        return Answer(error=str(error), status=503)


def _look(chosen: Chosen, observer: Observer) -> Seen:
    began_at = time.monotonic()
    view = look(chosen, observer)
    standings = tuple(standing_line(host, view.at) for host in view.chosen.hosts.seen)
    words = tuple(sentences_of(view))
    trends = {} if view.chosen.hung else history.trends(view)
    return Seen(view, words, standings, trends, time.monotonic() - began_at)


def _events(chosen: Chosen, since: str) -> list[Event]:
    return recent_events(chosen, _MOST_EVENTS, actions.began(since))


def _batch(chosen: Chosen, id: str) -> tuple[Batch, Outcome]:
    batch = batches.read(chosen.pipeline.root, id)
    return batch, batches.outcome(chosen.pipeline, batch)


def _batches(chosen: Chosen) -> list[Batch]:
    return list(batches.latest(chosen.pipeline.root, _MOST_BATCHES))


def _history(chosen: Chosen, stage: str) -> Past:
    """Return the last day of a stage, and the one before."""
    until = time.time()
    step = history.COARSE
    moments = history.read(chosen.pipeline.root, stage, until - 2 * _DAY, until, step)
    return Past(until, [one for one in moments if one is not None])


def _oldest(chosen: Chosen) -> Mapping[str, float]:
    """Return for how long documents wait, by stage; of nothing, while nothing can be seen."""
    return oldest_waiting(chosen, time.time())


# What may be asked, but for a look; each gets the pipeline and the words of the question.
_ANSWERS: Mapping[str, Callable[..., object]] = {
    "trace": follow,
    "oldest": _oldest,
    "piece": read_piece,
    "events": _events,
    "survey": actions.discarded,
    "batch": _batch,
    "batches": _batches,
    "history": _history,
    "prepare": actions.prepare,
    "put_back": actions.put_back,
    "act": actions.act,
    "stacks": stacks_of,
}
