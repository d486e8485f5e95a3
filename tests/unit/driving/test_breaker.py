"""A stage whose documents all fail for one cause stops itself, and goes on when it works again."""

import itertools
import os
import shutil
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from queuedriver.claims.counts import Pass
from queuedriver.claims.liveness import Heartbeat, identify
from queuedriver.claims.outcomes import cause_key, from_exception
from queuedriver.driving.breaker import (
    Breaker,
    has_worked,
    in_a_row,
    pause_after,
)
from queuedriver.driving.driver import Driver
from queuedriver.driving.loop import Left
from queuedriver.driving.plan import Quit, Seen, Wait, plan
from queuedriver.errors import PermanentError, TryLater
from queuedriver.format.records import Counters, Failure, Registration, decode_line
from queuedriver.operating import operations
from queuedriver.operating.queue import Queue
from queuedriver.options import Options
from tests.openings import open_queue, registrations
from tests.waiting import until

BROKEN, OTHER = "broken", "other"


def peer(cause: str = "", documents: int = 0) -> Registration:
    """What a driver says of itself whose last five documents failed of this."""
    return Registration(
        id="d",
        salt="5a17",
        identity=identify(os.getpid()),
        started_at=0.0,
        streak=5 if cause else 0,
        streak_of=cause,
        counters=Counters(documents=documents),
    )


# Pure


def test_drivers_count_together_what_fails_for_one_cause() -> None:
    assert in_a_row(peer(BROKEN), []) == 5
    assert in_a_row(peer(BROKEN), [peer(BROKEN), peer(), peer(BROKEN)]) == 15


def test_others_do_not_count_while_one_fails_for_another_cause() -> None:
    assert in_a_row(peer(BROKEN), [peer(BROKEN), peer(OTHER)]) == 5


def test_success_of_another_driver_since_is_a_success_of_the_stage() -> None:
    three, four = {"d-5a17": peer(documents=3)}, {"d-5a17": peer(documents=4)}
    assert has_worked(three, [peer(documents=4)])
    assert not has_worked(four, [peer(documents=4)])
    # Whatever failed after it.
    assert has_worked(three, [peer(BROKEN, documents=4)])
    assert not has_worked(four, [peer(BROKEN, documents=4)])
    # Who came meanwhile may have been successful before.
    assert not has_worked({}, [peer(documents=4)])


def test_who_has_found_that_another_succeeded_is_believed() -> None:
    suspicious = {"d-5a17": peer(BROKEN, documents=4)}
    assert has_worked(suspicious, [peer(documents=4)])
    assert not has_worked(suspicious, [peer(BROKEN, documents=4)])


def test_trials_become_rarer_and_keep_the_pace_of_the_stage() -> None:
    assert [pause_after(trials, 1) for trials in range(7)] == [30, 60, 120, 240, 480, 600, 600]
    assert pause_after(10_000, 8) == 8 * 600


def failure_of(error: Exception) -> Failure:
    ending = from_exception(error)
    return ending.failure  # type: ignore[union-attr]


def test_cause_is_the_same_for_other_numbers_names_and_paths() -> None:
    one = failure_of(ConnectionError("no answer from '10.0.0.1' after 31 s: /srv/a.pdf"))
    other = failure_of(ConnectionError("no answer from '10.0.0.2' after 7 s: /srv/b/c.pdf"))
    assert cause_key(one) == cause_key(other)
    assert cause_key(one) != cause_key(failure_of(ValueError("no answer")))
    exit_3, exit_4 = (Failure(cause="exit", message="it", exit_code=code) for code in (3, 4))
    assert cause_key(exit_3) != cause_key(exit_4)


def test_causes_in_different_functions_differ() -> None:
    def here() -> None:
        raise ValueError("no")

    def there() -> None:
        raise ValueError("no")

    keys = []
    for function in (here, there, here):
        try:
            function()
        except ValueError as error:
            keys.append(cause_key(failure_of(error)))
    assert keys[0] == keys[2] != keys[1]


def test_stopped_stage_claims_nothing_and_a_drain_says_so() -> None:
    stopped = Seen(tripped="it is broken", trial_in=12.0, candidate=True, passed=Pass(ready=3))
    decision = plan(stopped)
    assert isinstance(decision, Wait)
    assert decision.state == "tripped"
    drain = plan(Seen(tripped="it is broken", candidate=True, passed=Pass(ready=3), drain=True))
    assert drain == Quit("tripped", "it is broken", 75)
    # Nothing is left that it would not claim.
    assert plan(Seen(tripped="it is broken", drain=True, empty_for=1.0)) == Quit(
        "drained", "the queue is drained"
    )


def test_nothing_is_claimed_while_it_is_made_sure() -> None:
    assert isinstance(plan(Seen(holding=True, candidate=True, drain=True)), Wait)


# Two drivers, and who looks when


class Suspicious:
    """A driver's breaker, at an instant that is said."""

    def __init__(self, queue: Queue, id: str) -> None:
        self.now = 0.0
        self.documents = 0
        self.queue = open_queue(queue, (), driver=id, salt=id)
        self.breaker = Breaker([self.queue], 6, lambda: self.now, lambda: None)
        self.beats = Heartbeat(
            Registration(id=id, salt=id, identity=identify(os.getpid()), started_at=0.0),
            [self.queue.drivers],
            lambda: ("busy", "", Counters(documents=self.documents)),
        )
        self.breaker.beats = [self.beats]
        self.beats.write()

    def fails(self, times: int, at: float) -> None:
        self.now = at
        for _ in range(times):
            self.breaker.charged(self.queue, failure_of(ConnectionError("no answer")))

    def looks(self, at: float) -> None:
        self.now = at
        self.breaker.look(at)


@pytest.fixture
def two(tmp_path: Path) -> tuple[Suspicious, Suspicious]:
    queue = Queue.open(tmp_path / "in", create=True)
    return Suspicious(queue, "first"), Suspicious(queue, "last")


def test_streak_is_of_one_cause(two: tuple[Suspicious, Suspicious]) -> None:
    driver, said = two[0], two[0].beats.registration
    driver.fails(3, at=0.0)
    assert said.streak == 3
    driver.breaker.charged(driver.queue, failure_of(ValueError("another")))
    assert said.streak == 1
    assert "another" in said.streak_of


def test_driver_that_looks_too_early_waits_for_what_another_has_found_out(
    two: tuple[Suspicious, Suspicious], tmp_path: Path
) -> None:
    first, last = two
    first.fails(6, at=0.0)
    # What it had done it tells when it begins to make sure, too.
    last.documents = 4
    last.fails(3, at=0.01)
    assert first.breaker.holds
    assert last.breaker.holds
    # The first one is late, on a busy machine.
    last.looks(at=1.6)
    assert not (tmp_path / "in/.queuedriver/breaker.json").exists()
    first.looks(at=1.7)
    assert not first.breaker.stops
    last.looks(at=3.2)
    assert not last.breaker.stops
    assert not (tmp_path / "in/.queuedriver/breaker.json").exists()


def test_drivers_that_all_fail_stop_when_nobody_has_found_anything_out(
    two: tuple[Suspicious, Suspicious], tmp_path: Path
) -> None:
    first, last = two
    first.fails(6, at=0.0)
    last.fails(3, at=0.01)
    for at in (1.6, 3.2):
        first.looks(at)
        last.looks(at)
    assert first.breaker.trip is not None
    assert last.breaker.trip == first.breaker.trip


# Real drivers


class Stage:
    """A queue, and drivers of it in threads."""

    def __init__(self, path: Path, documents: int) -> None:
        self.path = path
        (path / "in").mkdir()
        for number in range(documents):
            (path / "in" / f"doc{number:04}.ready").write_bytes(b"x")
        self.tried: list[str] = []
        self.left: list[Left] = []
        self.threads: list[threading.Thread] = []

    def drive(
        self,
        process: Callable[..., object],
        *,
        id: str = "d",
        drain: bool = True,
        speed: float = 1.0,
        trip_after: int = 20,
        retries: int = 0,
        durable: bool = False,
        batch: int = 1,
    ) -> None:
        """Start a driver; its clock goes so much faster."""

        def watched(document: object) -> object:
            self.tried.append(getattr(document, "docid", ""))
            return process(document)

        options = Options(
            poll=True,
            drain=drain,
            retries=retries,
            trip_after=trip_after,
            durable=durable,
            batch=batch,
        )
        driver = Driver(
            self.path / "in",
            watched,
            self.path / "out",
            id=id,
            options=options,
            clock=lambda: time.monotonic() * speed,
        )
        thread = threading.Thread(target=lambda: self.left.append(driver.run()), daemon=True)
        self.threads.append(thread)
        thread.start()

    def end(self) -> list[Left]:
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive()
        return self.left

    def quit(self) -> None:
        (self.path / "in" / "QUIT").touch()
        self.end()
        (self.path / "in" / "QUIT").unlink()

    @property
    def tripped(self) -> bool:
        return (self.path / "in" / ".queuedriver" / "breaker.json").exists()

    def count(self, where: str, pattern: str = "*") -> int:
        names = (one.name for one in (self.path / where).glob(pattern))
        return sum(name[0] != "." and not name.endswith(".report.json") for name in names)

    @property
    def discarded(self) -> int:
        return self.count("in/discarded", "doc*") if (self.path / "in/discarded").exists() else 0

    def events(self, kind: str) -> int:
        files = (self.path / "in" / ".queuedriver" / "journal").glob("*.jsonl")
        lines = (line for file in files for line in file.read_bytes().splitlines())
        return sum(event is not None and event.event == kind for event in map(decode_line, lines))


def broken(document: object) -> object:
    raise ConnectionError("no answer from the model server")


def works(document: object) -> object:
    return b"done"


def test_stage_in_a_broken_environment_stops_itself(tmp_path: Path) -> None:
    stage = Stage(tmp_path, 200)
    stage.drive(broken)
    (left,) = stage.end()
    assert (left.word, left.exit_code) == ("tripped", 75)
    assert "20 documents in a row failed for one cause (ConnectionError: no answer" in left.why
    assert "queuedriver resume" in left.why
    assert stage.discarded == 20
    assert stage.count("in", "*.ready") == 180
    assert stage.events("tripped") == 1


def test_stage_of_several_inputs_names_the_one_that_is_to_be_resumed(tmp_path: Path) -> None:
    one, other, to = (tmp_path / name for name in ("one", "other", "to"))
    for path in (one, other, to):
        path.mkdir()
    for number in range(8):
        (other / f"doc{number}.ready").touch()
    options = Options(poll=True, drain=True, retries=0, trip_after=4)
    left = Driver([one, other], broken, to, options=options).run()
    assert (left.word, left.exit_code) == ("tripped", 75)
    assert f"queuedriver resume {other} goes on" in left.why


@pytest.mark.parametrize("error", [PermanentError("corrupt PDF"), TryLater(after=3600)])
def test_documents_that_are_to_blame_themselves_stop_no_stage(
    tmp_path: Path, error: Exception
) -> None:
    stage = Stage(tmp_path, 100)

    def process(document: object) -> object:
        raise error

    # As with a thousand and twenty.
    stage.drive(process, trip_after=2)
    (left,) = stage.end()
    assert left.word in ("drained", "later")
    assert not stage.tripped
    assert len(stage.tried) == 100


def test_alternating_causes_stop_no_stage(tmp_path: Path) -> None:
    stage, turn = Stage(tmp_path, 100), itertools.count()

    def process(document: object) -> object:
        raise ValueError("this") if next(turn) % 2 else KeyError("that")

    stage.drive(process)
    assert stage.end()[0].word == "drained"
    assert stage.discarded == 100


@pytest.mark.parametrize("durable", [False, True])
def test_success_in_between_ends_the_streak(tmp_path: Path, durable: bool) -> None:
    stage, turn = Stage(tmp_path, 100), itertools.count()
    stage.drive(lambda one: broken(one) if next(turn) % 19 else works(one), durable=durable)
    assert stage.end()[0].word == "drained"
    assert stage.count("out") == 6


def test_permanent_failure_in_between_does_not_end_the_streak(tmp_path: Path) -> None:
    stage, turn = Stage(tmp_path, 100), itertools.count()

    def process(document: object) -> object:
        if next(turn) % 2:
            raise PermanentError("corrupt PDF")
        return broken(document)

    stage.drive(process)
    assert stage.end()[0].word == "tripped"
    assert stage.discarded <= 40


def test_zero_lets_it_go_on_for_ever(tmp_path: Path) -> None:
    stage = Stage(tmp_path, 60)
    stage.drive(broken, trip_after=0)
    assert stage.end()[0].word == "drained"
    assert stage.discarded == 60


def test_batch_at_hand_is_given_back_when_its_stage_stops(tmp_path: Path) -> None:
    stage = Stage(tmp_path, 100)
    stage.drive(broken, batch=50, retries=1)
    assert stage.end()[0].word == "tripped"
    assert stage.count("in", "*.failed") == 20
    assert stage.count("in", "*.ready") == 80


def test_eight_drivers_stop_together_after_about_as_many_failures_as_one(tmp_path: Path) -> None:
    stage = Stage(tmp_path, 400)
    for number in range(8):
        stage.drive(broken, id=f"d{number}")
    assert {left.word for left in stage.end()} == {"tripped"}
    assert stage.discarded <= 3 * 20
    assert stage.count("in", "*.ready") + stage.discarded == 400
    assert stage.events("tripped") == 1


def test_driver_that_alone_is_broken_does_not_stop_a_stage_that_works(tmp_path: Path) -> None:
    stage = Stage(tmp_path, 300)

    def slowly(document: object) -> object:
        time.sleep(0.02)
        return b"done"

    stage.drive(slowly, id="well", drain=False)
    until(lambda: stage.count("out") > 10)
    stage.drive(broken, id="ill", drain=False)
    until(lambda: stage.count("out") + stage.discarded == 300)
    stage.quit()
    assert stage.events("tripped") == 0
    assert stage.discarded >= 20


def test_stage_of_many_drivers_is_not_held_up_by_failures_that_are_usual(tmp_path: Path) -> None:
    stage = Stage(tmp_path, 600)

    def half(document: object) -> object:
        time.sleep(0.005)
        # No share of the names has more of them than another.
        fails = zlib.crc32(getattr(document, "docid", "").encode()) % 2
        return broken(document) if fails else works(document)

    for number in range(10):
        stage.drive(half, id=f"d{number}", trip_after=6)
    left = stage.end()
    assert {one.word for one in left} == {"drained"}
    assert stage.discarded + stage.count("out") == 600
    # Milliseconds in which they made sure, and waited for the last documents of the others.
    assert sum(one.counters.wait for one in left) / len(left) < 10_000


def test_stage_stays_stopped_over_restarts(tmp_path: Path) -> None:
    stage = Stage(tmp_path, 100)
    stage.drive(broken)
    stage.end()
    charged = stage.discarded
    stage.drive(broken, id="another")
    assert [left.word for left in stage.end()] == ["tripped", "tripped"]
    assert stage.discarded == charged
    assert len(stage.tried) == charged


def test_trials_are_given_back_uncharged(tmp_path: Path) -> None:
    stage = Stage(tmp_path, 60)
    stage.drive(broken, drain=False, speed=2000.0)
    until(lambda: len(stage.tried) >= 25)
    assert stage.tripped
    stage.quit()
    assert stage.discarded == 20
    assert stage.count("in", "*.ready") == 40
    assert not list((tmp_path / "in/.queuedriver/attempts").iterdir())
    # Drawn from all that wait.
    assert len(set(stage.tried)) > 21


def test_stage_goes_on_by_itself_when_the_cause_is_gone(tmp_path: Path) -> None:
    stage = Stage(tmp_path, 100)
    mended = threading.Event()
    stage.drive(
        lambda one: works(one) if mended.is_set() else broken(one), drain=False, speed=2000.0
    )
    until(lambda: len(stage.tried) >= 22)
    mended.set()
    until(lambda: stage.count("out") == 80)
    assert not stage.tripped
    stage.quit()
    assert (stage.discarded, stage.events("tripped"), stage.events("untripped")) == (20, 1, 1)


def test_stage_goes_on_at_once_when_it_is_resumed(tmp_path: Path) -> None:
    stage = Stage(tmp_path, 100)
    mended = threading.Event()
    for number in range(2):
        stage.drive(
            lambda one: works(one) if mended.is_set() else broken(one), drain=False, id=f"d{number}"
        )
    with Queue.open(tmp_path / "in") as queue:

        def know() -> bool:
            """Whether both have seen it: who is still making sure would stop it again."""
            return ["queuedriver resume" in one.why for one in registrations(queue)] == [True] * 2

        until(know, "both drivers know that their stage has stopped")
        mended.set()
        operations.resume(queue)
    until(lambda: not stage.count("in", "*.ready"))
    stage.quit()
    assert stage.count("out") + stage.discarded == 100
    assert stage.discarded <= 40


def test_permanent_failure_of_a_trial_is_charged_and_stops_no_longer(tmp_path: Path) -> None:
    stage = Stage(tmp_path, 60)

    def process(document: object) -> object:
        if len(stage.tried) > 20:
            raise PermanentError("corrupt PDF")
        return broken(document)

    stage.drive(process, drain=False, speed=2000.0)
    until(lambda: stage.discarded >= 22)
    assert stage.tripped
    stage.quit()


def test_file_that_is_none_of_ours_stops_nothing(tmp_path: Path) -> None:
    stage = Stage(tmp_path, 5)
    (tmp_path / "in/.queuedriver").mkdir()
    (tmp_path / "in/.queuedriver/breaker.json").write_text("[")
    stage.drive(works)
    assert stage.end()[0].word == "drained"
    shutil.rmtree(tmp_path / "out")


def test_file_that_is_none_of_ours_keeps_no_broken_stage_going(tmp_path: Path) -> None:
    stage = Stage(tmp_path, 60)
    (tmp_path / "in/.queuedriver").mkdir()
    (tmp_path / "in/.queuedriver/breaker.json").write_text("[")
    stage.drive(broken)
    assert stage.end()[0].word == "tripped"
    assert stage.discarded == 20


def test_queue_that_never_stopped_is_not_stopped(tmp_path: Path) -> None:
    with Queue.open(tmp_path) as queue:
        assert queue.stopped() is None
