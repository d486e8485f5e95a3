"""What a session wants is carried out on the queues once, whatever the file system says to it."""

import errno
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from queuedriver.claims.outcomes import Doubted, Failed, Released
from queuedriver.disk.filesystem import Directory
from queuedriver.doors import exchange
from queuedriver.doors.broker import BrokerLoop, Complaint
from queuedriver.doors.conversation import PATIENCE
from queuedriver.doors.exchange import Exchange, Worker
from queuedriver.doors.requests import Requests
from queuedriver.doors.service_queue import ServiceQueue
from queuedriver.doors.transports.base import AROUND, Arrival, Gone, Message
from queuedriver.doors.words import (
    Answer,
    Asked,
    Effects,
    End,
    Processed,
    Request,
    Result,
    Say,
    Send,
    Work,
)
from queuedriver.driving.limits import Limits
from queuedriver.driving.live_status import Board, Tally
from queuedriver.driving.wake import Woken
from queuedriver.errors import FileSystemTrouble, RemoteProtocolError
from queuedriver.format import names
from queuedriver.format.records import Failure
from queuedriver.format.settings import Settings
from queuedriver.operating.queue import Queue
from queuedriver.options import Options
from tests.openings import opened_with

if TYPE_CHECKING:
    from tests.conftest import Bench

MOST = 1000
ASKED = Request(b"client/1", (b"ask",))
BROKEN = Failed(Failure(cause="exit", message="no good"))


class Ailing(Directory):
    """A directory whose renames, and new files, fail when told to."""

    fails: tuple[str, ...] = ()

    def rename(self, old: str, new: str) -> None:
        self._fail(new)
        super().rename(old, new)

    def rename_new(self, old: str, new: str, to: Directory | None = None) -> None:
        self._fail(new)
        super().rename_new(old, new, to)

    def rename_over(self, old: str, new: str, to: Directory | None = None) -> None:
        self._fail(new)
        super().rename_over(old, new, to)

    def remove(self, name: str) -> bool:
        self._fail(name)
        return super().remove(name)

    def _fail(self, name: str) -> None:
        if self.fails and name.endswith(self.fails):
            raise OSError(errno.EIO, os.strerror(errno.EIO))


class Script(Exchange[Worker]):
    """An exchange that says what a test has put into its mouth, with one worker for everything."""

    worker = Worker

    def __init__(self) -> None:
        super().__init__()
        # What comes of the next messages, in their order.
        self.effects: list[Effects | Exception] = []
        self.dealt: list[Work] = []
        self.lost: list[tuple[bytes, str]] = []
        # How much its worker takes.
        self.free = 1_000_000
        # Whether clients are told of requests that are discarded, or not taken.
        self.refuses = True

    def hear(self, peer: bytes, frames: Sequence[bytes], now: float, wall: float) -> Effects:
        said = self.effects.pop(0)
        if isinstance(said, Exception):
            raise said
        return said

    def pick(
        self, service: str, now: float, need: int = 1, *, alone: bool = False
    ) -> Worker | None:
        worker = self.workers.get(b"worker") or self.join(b"worker", 0.0)
        assert worker is not None
        worker.alone = False
        self.offer(worker, self.free, 0.0)
        return super().pick(service, now, need)

    def frames_of(self, worker: Worker, work: Work) -> tuple[bytes, ...]:
        self.dealt.append(work)
        return (work.payload,)

    def forget(self, worker: Worker, why: str) -> None:
        self.lost.append((worker.name, why))

    def refusal(self, request: Request, why: str, *, late: bool = False) -> Answer | None:
        return Answer(b"client", (b"no", why.encode())) if self.refuses else None


class Wires:
    """A transport that ends in lists."""

    def __init__(self) -> None:
        self.coming: list[Arrival] = []
        self.sent: list[tuple[bytes, tuple[bytes, ...]]] = []
        self.away: set[bytes] = set()

    def arrivals(self) -> Iterator[Arrival]:
        while self.coming:
            yield self.coming.pop(0)

    def pending(self) -> bool:
        return bool(self.coming)

    def send(self, peer: bytes, frames: tuple[bytes, ...]) -> bool:
        if peer in self.away:
            return False
        self.sent.append((peer, frames))
        return True

    def drop(self, peer: bytes) -> None:
        self.away.add(peer)

    def fds(self) -> list[int]:
        return []

    def missing(self) -> str:
        return ""

    def next_tick_at(self) -> float | None:
        return None

    def tick(self, now: float) -> None:
        pass

    def close(self) -> None:
        pass


class Office:
    """A broker's loop over one queue, turned by hand."""

    def __init__(self, bench: "Bench", salt: str = "5a17") -> None:
        self.bench = bench
        self.inside = Ailing.open(bench.directory("in").path)
        self.session, self.transport = Script(), Wires()
        self.limits, self.tally = Limits(), Tally()
        settings = Settings(retries=1)
        self.queue = bench.open(directory=self.inside, settings=settings, driver="b", salt=salt)
        self.whole = Queue(self.inside)
        self.said: list[str] = []
        self.loop = BrokerLoop(
            opened_with(self.queue),
            self.session,
            self.transport,
            self.limits,
            self.tally,
            Options(),
            0,
            self.said.append,
        )
        self.requests = Requests(self.whole, self.queue.mint, self.transport.send, durable=False)
        self.requests.load(time.monotonic())
        self.source = ServiceQueue(
            "", self.queue, self.requests, self.session, self.tally, self.limits, MOST
        )
        self.loop.sources.append(self.source)

    @property
    def held(self) -> set[str]:
        """The N of what is at hand."""
        return set(self.queue.at_hand)

    def close(self) -> None:
        """As after a kill: nothing is given back."""
        self.loop.waker.close()
        self.requests.close()
        self.whole.close()
        self.limits.close()

    def hear(self, *effects: Effects | Exception, peer: bytes = b"worker") -> None:
        """A message for each; what comes of them waits for `settle`."""
        self.session.effects += effects
        self.transport.coming += [Message(peer, [b""]) for _ in effects]
        self.loop.talk.turn(time.monotonic(), time.time())

    def settle(self) -> None:
        self.loop._settle(time.monotonic())
        self.queue.note_handed_over()

    def deal(self) -> Work | None:
        """The next item that waits, to whoever is ready."""
        before = len(self.session.dealt)
        self.loop._deal(time.monotonic())
        self.source.wake()
        return self.session.dealt[-1] if len(self.session.dealt) > before else None

    def mend(self) -> None:
        """As the loop does when the file system is well again."""
        self.inside.fails = ()
        self.queue.reopen()
        self.source.clean()

    def put(self, *docids: str) -> None:
        for docid in docids:
            self.bench.put(f"in/{docid}.ready", docid.encode())

    def dealt(self, docid: str = "doc") -> Work:
        self.put(docid)
        work = self.deal()
        assert work is not None
        return work

    def ask(self, request: Request = ASKED) -> Work:
        """A request that came, and is with a worker."""
        self.hear([Asked(request)], peer=b"client")
        self.settle()
        work = self.deal()
        assert work is not None
        return work

    @property
    def items(self) -> list[str]:
        """What waits or is claimed, without the N of claims."""
        found = (names.parse(name) for name in self.bench.ls())
        return [f"{item.docid}:{item.state}" for item in found if item is not None]

    def outputs(self) -> dict[str, bytes]:
        return {name: self.bench.read(f"out/{name}") for name in self.bench.ls("out")}

    def replies(self) -> list[str]:
        return os.listdir(self.bench.root / "in/.queuedriver/replies")

    def discarded(self) -> dict[str, str]:
        queue = self.whole
        reports = {docid: queue.report(docid) for docid in queue.discarded()}
        return {docid: one.failure.cause for docid, one in reports.items() if one is not None}


@pytest.fixture
def offices(bench: "Bench") -> Iterator[list[Office]]:
    opened: list[Office] = []
    yield opened
    for office in opened:
        office.close()


@pytest.fixture
def office(bench: "Bench", offices: list[Office]) -> Office:
    offices.append(office := Office(bench))
    return office


def restarted(office: Office, offices: list[Office]) -> Office:
    """Killed, and started again; what it had claimed was taken back."""
    offices.remove(office)
    office.close()
    for path in (office.bench.root / "in").glob("*.working"):
        item = names.parse(path.name)
        assert item is not None
        path.rename(path.with_name(names.waiting_name(item.docid, item.attempt)))
    offices.append(another := Office(office.bench, "5a18"))
    return another


def answer(work: Work, peer: bytes = b"client") -> End:
    return End(work.claim, Answer(peer, (b"answer",)))


def done(work: Work, data: bytes = b"result", name: str | None = None) -> End:
    return End(work.claim, Processed((Result(data, name),)))


def lost(works: Sequence[Work], *, doubted: bool = False) -> Effects:
    """What comes of it that a worker is lost that had these."""
    failure = Failure(cause="worker-lost", message="its worker was lost")
    return [End(work.claim, Doubted(failure) if doubted else Failed(failure)) for work in works]


# Documents


def test_document_is_dealt_and_its_result_published(office: Office) -> None:
    work = office.dealt()
    assert (work.docid, work.attempt, work.payload, work.request) == ("doc", 0, b"doc", None)
    assert office.loop.at_hand == 1
    office.hear([done(work)])
    assert office.items == ["doc:working"]
    office.settle()
    assert (office.items, office.outputs()) == ([], {"doc.ready": b"result"})
    assert (office.loop.at_hand, office.queue.published, office.held) == (0, 1, set())


def test_several_outputs_are_published_together(office: Office) -> None:
    work = office.dealt()
    office.hear(
        [End(work.claim, Processed((Result(b"1", "one"), Result(b"2", "two"), Result(b"3"))))]
    )
    office.settle()
    assert office.outputs() == {"doc.ready": b"3", "one.ready": b"1", "two.ready": b"2"}


@pytest.mark.parametrize("name", ["../up", "", ".hidden", "a/b", "x" * 300, "a\0b", "PAUSE"])
def test_output_that_cannot_have_its_name_costs_an_attempt_and_writes_nothing(
    office: Office, name: str
) -> None:
    work = office.dealt()
    office.hear([End(work.claim, Processed((Result(b"1", "one"), Result(b"2", name))))])
    office.settle()
    assert office.items == ["doc:failed"]
    assert office.outputs() == {}
    assert not list(office.bench.root.rglob("*hidden*"))


def test_result_that_comes_twice_or_too_late_is_dropped(office: Office) -> None:
    work = office.dealt()
    office.hear([End(work.claim, Released("given back"))], [done(work)], [done(work)])
    office.settle()
    assert (office.items, office.outputs()) == (["doc:ready"], {})


def test_lost_worker_charges_each_of_its_documents_once(office: Office) -> None:
    works = [office.dealt(docid) for docid in ("a", "b")]
    office.hear(lost(works))
    office.settle()
    assert office.items == ["a:failed", "b:failed"]
    works = [work for work in (office.deal(), office.deal()) if work]
    assert [work.attempt for work in works] == [1, 1]
    office.hear(lost(works))
    office.settle()
    assert office.discarded() == {"a": "worker-lost", "b": "worker-lost"}


def test_documents_of_which_any_may_have_ended_their_worker_are_charged_the_third_time(
    office: Office,
) -> None:
    office.put("a", "b")
    for fate, alone in (("ready", False), ("ready", True), ("failed", True)):
        works = [work for work in (office.deal(), office.deal()) if work]
        assert [work.alone for work in works] == [alone, alone]
        office.hear(lost(works, doubted=True))
        office.settle()
        assert office.items == [f"a:{fate}", f"b:{fate}"]


def test_document_that_was_taken_back_is_alone_with_the_next_broker_and_its_successor_is_not(
    office: Office, offices: list[Office]
) -> None:
    work = office.dealt()
    office.hear(lost([work], doubted=True))
    office.settle()
    later = restarted(office, offices)
    again = later.deal()
    assert again is not None
    assert again.alone
    later.hear([done(again)])
    later.settle()
    assert not later.dealt().alone


def test_document_that_is_larger_than_a_message_is_discarded_unread(office: Office) -> None:
    path = office.bench.put("in/doc.ready", b"")
    os.truncate(path, 1 << 40)
    assert office.deal() is None
    assert office.discarded() == {"doc": "too-large"}
    assert (office.loop.at_hand, office.held) == (0, set())


def test_document_of_just_the_size_of_a_message_is_dealt(office: Office) -> None:
    office.bench.put("in/doc.ready", b"x" * MOST)
    assert office.deal() is not None
    office.bench.put("in/more.ready", b"x" * (MOST + 1))
    assert office.deal() is None


def test_what_is_no_file_is_discarded(office: Office) -> None:
    (office.bench.root / "in/doc.ready").symlink_to("/etc/passwd")
    assert office.deal() is None
    assert office.discarded() == {"doc": "not-a-file"}


class Unreadable(Ailing):
    """Another user's documents."""

    def read_regular(self, name: str) -> bytes | None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)


def test_document_that_may_not_be_read_stops_no_broker(
    bench: "Bench", offices: list[Office]
) -> None:
    offices.append(office := Office(bench))
    office.inside.__class__ = Unreadable
    office.put("doc")
    assert office.deal() is None
    assert office.items == ["doc:failed"]
    assert office.held == set()


def test_document_that_is_taken_away_amid_its_claim_stops_no_broker(office: Office) -> None:
    class Fleeting(Ailing):
        def read_regular(self, name: str) -> bytes | None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)

    office.inside.__class__ = Fleeting
    office.put("doc")
    assert office.deal() is None
    assert office.items == ["doc:ready"]


def test_item_waits_where_it_is_when_nobody_is_ready_any_more(office: Office) -> None:
    office.put("doc")
    office.session.free = 0
    assert office.deal() is None
    assert office.items == ["doc:ready"]
    office.session.free = 1
    assert office.deal() is not None


def test_worker_that_cannot_be_reached_is_gone(office: Office) -> None:
    office.transport.away.add(b"worker")
    office.dealt()
    assert office.session.lost == [(b"worker", exchange.UNDELIVERED)]
    office.settle()
    assert office.items == ["doc:ready"]


def test_document_of_a_worker_that_an_answer_does_not_reach_is_given_back_at_once(
    office: Office,
) -> None:
    office.dealt()
    office.transport.away.add(b"worker")
    # It is not reached by what was held for what else it might be dealt.
    office.session.effects.append([Send(b"worker", (b"are you there?",))])
    office.transport.coming.append(Message(b"somebody", [b""]))

    def sleep(seconds: float) -> Woken:
        raise AssertionError("it sleeps before it has given it back")

    office.loop.waker.wait = sleep  # type: ignore[method-assign]
    assert office.loop.wait(60.0) == "other"
    office.settle()
    assert office.items == ["doc:failed"]


def test_nonsense_of_one_peer_is_dropped_and_the_rest_heard(office: Office) -> None:
    work = office.dealt()
    office.hear(RemoteProtocolError("what?"), [done(work)])
    office.settle()
    assert office.outputs() == {"doc.ready": b"result"}
    # It may be much: nobody is told unless they ask.
    assert not office.said


def test_what_was_said_is_shown_from_its_level_on(office: Office) -> None:
    office.hear([Say(0, "for all"), Say(5, "for some")])
    assert office.said == ["for all"]


def test_connection_that_ended_is_told_to_the_exchange(office: Office) -> None:
    office.dealt()
    office.transport.coming.append(Gone(b"worker", "reset"))
    office.loop.talk.turn(time.monotonic(), time.time())
    assert office.session.lost == [(b"worker", exchange.UNROUTABLE)]


# Trouble with the file system


@pytest.mark.parametrize("fails", [".working", ".written", ".ready"])
def test_trouble_amid_one_result_loses_no_other_and_charges_nobody(
    office: Office, fails: str
) -> None:
    first, second = office.dealt("a"), office.dealt("b")
    # With names, they do not go the usual way, which takes a directory's descriptor.
    office.hear([done(first, b"1", "a"), done(second, b"2", "b")])
    office.inside.fails = (".written", fails)
    with pytest.raises(OSError, match="error"):
        office.settle()
    office.mend()
    office.settle()
    assert office.outputs()["b.ready"] == b"2"
    # The first is given back, and done again.
    work = office.deal()
    if work is not None:
        assert (work.docid, work.attempt) == ("a", 0)
        office.hear([done(work, b"1")])
        office.settle()
    assert office.outputs() == {"a.ready": b"1", "b.ready": b"2"}
    assert (office.items, office.held) == ([], set())


def test_output_directory_that_is_gone_charges_nobody(office: Office) -> None:
    work = office.dealt()
    office.hear([done(work)])
    out = office.bench.root / "out"
    out.rmdir()
    with pytest.raises((FileSystemTrouble, FileNotFoundError)):
        office.settle()
    out.mkdir()
    office.mend()
    assert office.items == ["doc:ready"]


def test_failure_that_cannot_be_noted_is_not_one(office: Office) -> None:
    work = office.dealt()
    office.hear([End(work.claim, BROKEN)])
    office.inside.fails = (".failed", ".ready")
    with pytest.raises(OSError, match="error"):
        office.settle()
    office.mend()
    assert office.items == ["doc:ready"]
    assert office.held == set()


def test_all_that_workers_have_is_given_back_though_one_claim_cannot_be(office: Office) -> None:
    office.dealt("a")
    office.dealt("b")
    office.inside.fails = ("a.ready",)
    office.source.give_back("leaving")
    assert office.items == ["a:working", "b:ready"]
    assert office.loop.at_hand == 0


# Requests that are answered


def test_request_is_on_disk_before_anything_else_happens_to_it(office: Office) -> None:
    office.hear([Asked(ASKED)], peer=b"client")
    office.settle()
    (item,) = office.items
    assert item.startswith("request-")
    assert office.transport.sent == []
    work = office.deal()
    assert work is not None
    assert work.request == ASKED


def test_answer_goes_to_its_client_and_nothing_is_left(office: Office) -> None:
    work = office.ask()
    office.hear([answer(work)])
    office.settle()
    assert office.transport.sent[-1] == (b"client", (b"answer",))
    assert (office.items, office.outputs(), office.replies()) == ([], {}, [])
    assert office.loop.at_hand == 0


def test_request_that_is_repeated_before_during_and_after_is_done_once(office: Office) -> None:
    office.hear([Asked(ASKED)], [Asked(ASKED)], peer=b"client")
    office.settle()
    work = office.deal()
    assert work is not None
    office.hear([Asked(ASKED)], peer=b"client")
    office.settle()
    assert office.deal() is None
    office.hear([answer(work)])
    office.settle()
    before = len(office.transport.sent)
    # It was lost on its way: the same answer again.
    office.hear([Asked(ASKED)], peer=b"client")
    office.settle()
    assert office.transport.sent[before:] == [(b"client", (b"answer",))]
    assert office.deal() is None


def test_answer_waits_for_a_client_that_is_away_and_is_sent_once(office: Office) -> None:
    work = office.ask()
    office.transport.away.add(b"client")
    office.hear([answer(work)])
    office.settle()
    assert office.items == []
    assert len(office.replies()) == 1
    office.transport.away.clear()
    before = len(office.transport.sent)
    office.hear([Asked(ASKED)], peer=b"client")
    office.settle()
    assert office.transport.sent[before:] == [(b"client", (b"answer",))]
    assert (office.items, office.replies()) == ([], [])


def test_trouble_when_a_client_comes_back_loses_nothing_that_was_heard_with_it(
    office: Office,
) -> None:
    work = office.ask()
    office.transport.away.add(b"client")
    office.hear([answer(work)])
    office.settle()
    office.transport.away.clear()
    other = office.dealt()
    replies = office.bench.root / "in/.queuedriver/replies"
    replies.rename(replies.with_name("elsewhere"))
    office.requests._replies.close()
    # In the same message: its sender is both.
    office.hear([done(other)], peer=b"client")
    office.source._look_at = 0.0
    with pytest.raises(OSError, match="descriptor"):
        office.settle()
    replies.with_name("elsewhere").rename(replies)
    office.requests._replies = office.whole.private.subdirectory("replies")
    office.mend()
    office.settle()
    assert office.outputs() == {"doc.ready": b"result"}
    assert office.transport.sent[-1] == (b"client", (b"answer",))


def test_answer_that_cannot_be_kept_is_kept_later_and_not_sent_before(office: Office) -> None:
    work = office.ask()
    office.hear([answer(work)])
    office.requests._replies.__class__ = Ailing
    office.requests._replies.fails = (work.docid,)  # type: ignore[attr-defined]
    with pytest.raises(OSError, match="error"):
        office.settle()
    assert office.transport.sent[-1][0] == b"worker"
    office.requests._replies.fails = ()  # type: ignore[attr-defined]
    office.mend()
    office.settle()
    assert office.transport.sent[-1] == (b"client", (b"answer",))
    assert (office.items, office.replies()) == ([], [])


def test_request_that_is_answered_and_cannot_be_finished_is_not_done_again(
    office: Office,
) -> None:
    work = office.ask()
    office.hear([answer(work)])
    office.inside.fails = (".working", ".ready")
    with pytest.raises(OSError, match="error"):
        office.settle()
    # The client need not wait for our disk.
    assert office.transport.sent[-1] == (b"client", (b"answer",))
    office.mend()
    assert office.items == [f"{work.docid}:ready"]
    assert office.deal() is None
    assert (office.items, office.replies()) == ([], [])


def test_request_too_much_is_not_promised_and_its_client_repeats_it(office: Office) -> None:
    office.hear([Asked(ASKED)], peer=b"client")
    office.whole.incoming.close()
    with pytest.raises(OSError, match="descriptor"):
        office.settle()
    del office.whole.incoming
    office.mend()
    office.settle()
    assert office.items == []
    assert office.ask().request == ASKED


def test_request_to_a_closed_queue_is_not_taken_and_its_client_is_told(office: Office) -> None:
    office.bench.put("in/done")
    nobody_waits = Request(b"client/2", (b"do",), answered=False)
    office.hear([Asked(ASKED)], [Asked(nobody_waits)], peer=b"client")
    office.settle()
    assert office.items == []
    assert "closed" in office.said[-1]
    ((peer, (word, why)),) = office.transport.sent
    assert (peer, word) == (b"client", b"no")
    assert b"closed" in why


def test_request_as_large_as_a_message_can_go_as_one(office: Office) -> None:
    large = Request(b"k" * 100, (b"x" * MOST, b"y" * 100))
    assert office.ask(large).request == large
    forged = Request(b"k", (b"x" * (MOST + AROUND),))
    office.hear([Asked(forged)], peer=b"client")
    office.settle()
    assert office.deal() is None
    assert set(office.discarded().values()) == {"too-large"}


# Its crash points


def test_request_that_was_claimed_is_done_again_by_the_next_broker(
    office: Office, offices: list[Office]
) -> None:
    office.ask()
    office = restarted(office, offices)
    # Nor does its client's repetition make two of it.
    office.hear([Asked(ASKED)], peer=b"client")
    office.settle()
    work = office.deal()
    assert work is not None
    assert work.request == ASKED
    assert office.deal() is None


def test_request_that_was_answered_and_not_finished_is_finished_by_the_next_broker(
    office: Office, offices: list[Office]
) -> None:
    work = office.ask()
    office.hear([answer(work)])
    # Killed after the answer was kept: nothing else can be done any more.
    office.inside.fails = (".working", ".ready")
    office.transport.away.add(b"client")
    with pytest.raises(OSError, match="error"):
        office.settle()
    office = restarted(office, offices)
    office.hear([], peer=b"client")
    office.settle()
    assert office.transport.sent == [(b"client", (b"answer",))]
    assert office.deal() is None
    assert (office.items, office.replies()) == ([], [])


def test_answer_that_was_not_sent_is_sent_by_the_next_broker_and_not_made_again(
    office: Office, offices: list[Office]
) -> None:
    work = office.ask()
    office.transport.away.add(b"client")
    office.hear([answer(work)])
    office.settle()
    office = restarted(office, offices)
    office.hear([Asked(ASKED)], peer=b"client")
    office.settle()
    assert office.transport.sent == [(b"client", (b"answer",))]
    assert (office.items, office.replies()) == ([], [])


# Requests that nobody waits for


def test_request_without_an_answer_is_finished_before_it_is_sent(office: Office) -> None:
    work = office.ask(Request(b"client/2", (b"do",), answered=False))
    assert office.items == []
    assert office.loop.at_hand == 0
    assert office.transport.sent == [(b"worker", (work.payload,))]


def test_request_without_an_answer_that_is_taken_back_meanwhile_is_not_sent(
    office: Office,
) -> None:
    """Somebody thinks that we are dead: to do it at most once is up to them now."""

    class TakenBack(Ailing):
        def remove(self, name: str) -> bool:
            return False

    office.hear([Asked(Request(b"client/2", (b"do",), answered=False))], peer=b"client")
    office.settle()
    office.inside.__class__ = TakenBack
    assert office.deal() is None
    assert office.transport.sent == []
    assert office.held == set()


# What a watchdog sees


def test_document_that_was_just_published_is_counted_before_the_broker_rests(
    office: Office, tmp_path: Path
) -> None:
    """Killed in that very moment, it is counted all the same."""
    office.tally.board = board = Board.create(str(tmp_path / "board"))
    office.hear([done(office.dealt())])
    office.loop._settle(time.monotonic())
    office.loop.wait = lambda seconds: "timeout"  # type: ignore[method-assign]
    office.loop.rest()
    assert board.read().totals.documents == 1
    board.close()


def test_workers_that_are_missing_are_named_each_time_that_they_are_others() -> None:
    said: list[str] = []
    complaint = Complaint(said.append)
    neither, soft = "no worker of 'loud' or of 'soft' is connected", "no worker of 'soft' is there"
    for start, missing in ((0.0, neither), (100.0, soft), (200.0, ""), (300.0, soft)):
        for passed in (0.0, PATIENCE - 0.1, PATIENCE, PATIENCE + 1.0):
            complaint.consider(missing, start + passed)
    after = "; what waits is dealt when one comes"
    assert said == [neither + after, soft + after, soft + after]
