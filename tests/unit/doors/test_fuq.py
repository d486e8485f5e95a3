"""The conversations of fuq: both tables, what crosses, and how processors are counted."""

from collections import deque

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from queuedriver.claims.outcomes import Failed, Released
from queuedriver.doors.fuq import wire
from queuedriver.doors.fuq.broker import SERVER, Broker, Worker
from queuedriver.doors.fuq.client import CLIENT, Client, Start
from queuedriver.doors.fuq.wire import (
    CANNOT_RUN,
    JobDescription,
    JobStatusUpdate,
    Message,
    NewJob,
    Receiver,
    Task,
    Type,
)
from queuedriver.doors.table import Table
from queuedriver.doors.words import Close, Effects, End, Leave, Processed, Say, Send, Work
from queuedriver.errors import RemoteProtocolError

SECRET = b"a secret that both sides know"
A, B = b"1", b"2"


def task(number: int, need: int = 1, job: int = 7) -> Task:
    return Task(number, JobDescription(job, "sim", 1000, "", "", "sim", num_proc=need))


def work(number: int, need: int = 1, job: int = 7) -> Work:
    body = wire.encode_task(task(number, need, job))
    return Work(f"{job}.{number}", "d", 0, body, str(job), need=need)


def done(number: int, job: int = 7, free: int | None = None) -> JobStatusUpdate:
    report = None if free is None else NewJob(free)
    return JobStatusUpdate(job, number, success=True, status="done", new_job=report)


def update(number: int, free: int | None = None, **more: object) -> bytes:
    sent = JobStatusUpdate(
        7,
        number,
        success=bool(more.get("success", True)),
        status=str(more.get("status", "done")),
        new_job=None if free is None else NewJob(free),
    )
    return wire.encode_body(Type.UPDATE, wire.encode_update(sent))


def sent(effects: Effects) -> list[Message]:
    """The messages among some effects."""
    receiver = Receiver()
    return [
        message
        for effect in effects
        if isinstance(effect, Send)
        for frame in effect.frames
        for message in receiver.feed(frame)
    ]


def kinds(effects: Effects) -> list[tuple[str, int]]:
    return [(one.type.name, one.arg0) for one in sent(effects)]


def greeted(nproc: int = 4, *peers: bytes, broker: Broker | None = None) -> Broker:
    """A broker whose clients have offered so many processors each."""
    broker = broker or Broker()
    for peer in peers or (A,):
        broker.joined(peer, 0.0)
        broker.hear(peer, [wire.encode(Type.OK, nproc)], 0.0, 0.0)
    return broker


def takes(
    broker: Broker, job: int, need: int, now: float, reserved: bytes | None = None
) -> bytes | None:
    """Which client would take a task of this job now; all but the reserved one."""
    broker.reserved.clear()
    if reserved is not None:
        broker.reserved.add(broker.workers[reserved])
    worker = broker.pick(str(job), now, need)
    return worker.name if worker is not None else None


def deal(broker: Broker, work: Work, now: float, to: bytes | None = None) -> Effects:
    """Send a task to whose turn it is, or to this client."""
    name = to if to is not None else takes(broker, int(work.service), work.need, now)
    assert name is not None
    return [broker.deal(broker.workers[name], work, now)]


def clients(broker: Broker) -> list[Worker]:
    """Everybody who has greeted."""
    return [one for one in broker.workers.values() if one.greeted]


def ends(effects: Effects) -> list[End]:
    return [one for one in effects if isinstance(one, End)]


def bytes_32() -> bytes:
    """A nonce."""
    return b"n" * wire.NONCE


def ready(max_proc: int = 4, **given: object) -> Client:
    """A client past its greeting."""
    client = Client(max_proc, **given)  # type: ignore[arg-type]
    client.joined(b"", 0.0)
    client.hear(b"", [wire.encode(Type.OK, 0)], 0.0, 0.0)
    client.hear(b"", [wire.encode(Type.OK, max_proc)], 0.0, 0.0)
    assert client.state == "CL_LOOP0"
    return client


def job(number: int, need: int = 1) -> bytes:
    return wire.encode_body(Type.JOB, wire.encode_task(task(number, need)))


OK = wire.encode(Type.OK, 0)
CANNOT = wire.encode(Type.ERROR, 2)
STOP_NOW = wire.encode(Type.STOP, wire.STOP_NOW)


# The greeting


def test_greeting_is_ok_0_then_ok_n_both_ways() -> None:
    broker, client = Broker(), Client(4)
    client.joined(b"", 0.0)
    first = broker.joined(A, 0.0)
    assert kinds(first) == [("OK", 0)]
    answer = client.hear(b"", [wire.encode(Type.OK, 12345)], 0.0, 0.0)
    assert kinds(answer) == [("OK", 4)]
    last = broker.hear(A, [wire.encode(Type.OK, 4)], 0.0, 0.0)
    assert kinds(last) == [("OK", 4)]
    client.hear(b"", [wire.encode(Type.OK, 4)], 0.0, 0.0)
    assert client.state == "CL_LOOP0"
    assert [(one.slots, one.free) for one in clients(broker)] == [(4, 4)]


def test_client_that_does_not_greet_in_time_is_cut_off() -> None:
    broker = Broker()
    broker.joined(A, 5.0)
    assert broker.tick(14.0) == []
    assert broker.next_tick_at() == 15.0
    effects = broker.tick(15.0)
    assert kinds(effects) == [("ERROR", 3)]
    assert any(isinstance(one, Close) for one in effects)
    assert broker.next_tick_at() is None


def test_broker_that_does_not_greet_in_time_is_left_for_another_try() -> None:
    client = Client(4)
    client.joined(b"", 0.0)
    assert client.next_tick_at() == 10.0
    assert client.tick(9.9, 9.9) == []
    assert Close(b"", "the broker does not greet") in client.tick(10.0, 10.0)


def test_client_that_is_offered_more_processors_than_anybody_has_is_cut_off() -> None:
    broker = Broker()
    broker.joined(A, 0.0)
    effects = broker.hear(A, [wire.encode(Type.OK, 65_536)], 0.0, 0.0)
    assert kinds(effects) == [("ERROR", 3)]
    assert clients(broker) == []


# What is dealt


def test_job_that_takes_exactly_all_processors_is_run() -> None:
    broker, client = greeted(4), ready(4)
    effects = deal(broker, work(1, need=4), 0.0)
    assert [one.type for one in sent(effects)] == [Type.JOB]
    begun = client.hear(b"", [sent_bytes(effects)], 0.0, 0.0)
    assert begun == [Start(task(1, need=4))]
    assert client.nproc == 0
    assert takes(broker, 7, 1, 0.0) is None


def sent_bytes(effects: Effects) -> bytes:
    return b"".join(b"".join(one.frames) for one in effects if isinstance(one, Send))


def test_whoever_was_dealt_to_longest_ago_is_next() -> None:
    broker = greeted(2, A, B)
    to = []
    for number in range(1, 5):
        effects = deal(broker, work(number), 0.0)
        assert isinstance(effects[0], Send)
        to.append(effects[0].peer)
    assert to == [A, B, A, B]


def test_task_that_is_larger_than_every_client_keeps_nobody_for_it() -> None:
    broker = greeted(4)
    assert takes(broker, 7, 5, 0.0) is None
    assert broker.reserved == set()


def test_large_task_keeps_smaller_ones_from_the_client_that_is_nearest_to_have_room() -> None:
    broker = greeted(4, A, B)
    deal(broker, work(1, need=3), 0.0, A)
    deal(broker, work(2, need=1), 0.0, B)
    assert takes(broker, 7, 4, 0.0) is None
    assert [one.name for one in broker.reserved] == [B]
    assert takes(broker, 8, 1, 0.0, B) == A


def test_report_ends_its_task_and_is_answered_with_what_is_free() -> None:
    broker = greeted(4)
    deal(broker, work(1), 0.0)
    effects = broker.hear(A, [update(1, free=4)], 0.0, 0.0)
    [end] = ends(effects)
    assert isinstance(end.how, Processed)
    [document] = [msgspec.json.decode(one.data) for one in end.how.results]
    assert (end.claim, document["name"], document["client"]) == ("7.1", "sim", "1")
    assert kinds(effects) == [("OK", 4)]


def test_late_result_is_answered_and_dropped() -> None:
    broker = greeted(4)
    deal(broker, work(1), 0.0)
    broker.hear(A, [update(1, free=4)], 0.0, 0.0)
    effects = broker.hear(A, [update(1, free=4)], 0.0, 0.0)
    assert kinds(effects) == [("OK", 4)]
    assert ends(effects) == []


def test_task_that_a_client_cannot_run_is_released_and_not_dealt_to_it_again() -> None:
    broker = greeted(4, A, B)
    deal(broker, work(1), 0.0, A)
    refusal = wire.encode(Type.ERROR, 2) + update(1, 4, success=False, status=CANNOT_RUN)
    effects = broker.hear(A, [refusal], 0.0, 0.0)
    [back] = ends(effects)
    assert isinstance(back.how, Released)
    assert takes(broker, 7, 1, 0.0) == B
    assert takes(broker, 7, 1, 0.0, reserved=B) is None
    assert takes(broker, 8, 1, 0.0, reserved=B) == A


def test_client_that_could_not_run_a_job_is_asked_again_ever_more_seldom() -> None:
    broker = greeted(4)
    for now, wait in ((0.0, 1.0), (10.0, 2.0), (20.0, 4.0)):
        deal(broker, work(1), now)
        broker.hear(A, [update(1, 4, success=False, status=CANNOT_RUN)], now, now)
        assert takes(broker, 7, 1, now + wait - 0.1) is None
        assert takes(broker, 7, 1, now + wait) == A
    deal(broker, work(1), 30.0)
    broker.hear(A, [update(1, 4)], 30.0, 30.0)
    assert clients(broker)[0].refused == {}


def test_error_alone_means_the_task_that_was_sent_last() -> None:
    broker = greeted(4, A, B)
    deal(broker, work(1), 0.0, A)
    deal(broker, work(2), 0.0, A)
    assert ends(broker.hear(A, [CANNOT], 5.0, 5.0)) == []
    assert broker.tick(5.9) == []
    assert broker.next_tick_at() == 6.0
    [back] = ends(broker.tick(6.0))
    assert (back.claim, type(back.how)) == ("7.2", Released)
    assert (list(broker.workers[A].in_hand), broker.workers[A].free) == (["7.1"], 3)
    assert takes(broker, 7, 1, 6.5) == B, "it is not asked for this job again at once"
    assert ends(broker.tick(10.0)) == []


def test_two_errors_alone_mean_the_two_that_were_sent_last() -> None:
    broker = greeted(4)
    for number in (1, 2, 3):
        deal(broker, work(number), 0.0)
    broker.hear(A, [CANNOT + CANNOT], 0.0, 0.0)
    back = [one.claim for one in ends(broker.tick(1.0))]
    assert sorted(back) == ["7.2", "7.3"]


def test_error_with_an_update_means_the_task_that_this_names() -> None:
    broker = greeted(4)
    deal(broker, work(1), 0.0)
    deal(broker, work(2), 0.0)
    refusal = update(1, 3, success=False, status=CANNOT_RUN)
    effects = broker.hear(A, [CANNOT, refusal], 0.0, 0.0)
    assert [one.claim for one in ends(effects)] == ["7.1"]
    assert broker.tick(2.0) == []
    assert list(broker.workers[A].in_hand) == ["7.2"]


def test_client_says_error_only_where_processors_lack() -> None:
    client = ready(1)
    [started] = client.hear(b"", [job(1)], 0.0, 0.0)
    assert isinstance(started, Start)
    assert [one.type for one in sent(client.refused(started.task, "not allowed"))] == [Type.UPDATE]
    client.hear(b"", [OK], 0.0, 0.0)
    assert [one.type for one in sent(client.hear(b"", [job(2, need=2)], 0.0, 0.0))] == [
        Type.ERROR,
        Type.UPDATE,
    ]


def test_client_that_had_no_room_may_be_dealt_the_job_later() -> None:
    broker = greeted(1)
    deal(broker, work(1), 0.0)
    broker.hear(A, [update(1, 0, success=False, status=CANNOT_RUN)], 0.0, 0.0)
    assert clients(broker)[0].refused == {}
    assert clients(broker)[0].slots == 0


def test_lost_client_loses_what_it_had_in_hand() -> None:
    broker = greeted(4)
    deal(broker, work(1), 0.0)
    deal(broker, work(2), 0.0)
    lost = [(one.claim, type(one.how)) for one in ends(broker.gone(A, 1.0))]
    assert lost == [("7.1", Failed), ("7.2", Failed)]
    assert broker.gone(A, 1.0) == []
    assert takes(broker, 7, 1, 1.0) is None


def test_task_that_could_not_be_sent_is_given_back_and_the_others_are_lost() -> None:
    broker = greeted(4)
    deal(broker, work(1), 0.0)
    deal(broker, work(2), 0.0)
    given_back, lost = ends(broker.undelivered(A, "7.2", 0.0))
    assert given_back == End("7.2", Released("its worker was gone before it was sent"))
    assert (lost.claim, type(lost.how)) == ("7.1", Failed)


def test_client_that_was_stopped_at_once_charges_nobody() -> None:
    broker = greeted(4)
    deal(broker, work(1), 0.0)
    assert kinds(broker.stop(wire.STOP_NOW, 0.0)) == [("STOP", wire.STOP_NOW)]
    [back] = ends(broker.gone(A, 1.0))
    assert isinstance(back.how, Released)


def test_task_that_takes_longer_than_the_job_timeout_costs_its_client() -> None:
    broker = greeted(4, broker=Broker(job_timeout=60.0))
    deal(broker, work(1), 10.0)
    assert ends(broker.tick(69.0)) == []
    assert broker.next_tick_at() == 70.0
    effects = broker.tick(70.0)
    assert [(one.claim, type(one.how)) for one in ends(effects)] == [("7.1", Failed)]
    assert any(isinstance(one, Close) for one in effects)


@pytest.mark.parametrize("kind", [Type.STOP, Type.JOB, Type.AUTH])
def test_client_that_says_what_only_brokers_say_is_cut_off(kind: Type) -> None:
    broker = greeted(4)
    deal(broker, work(1), 0.0)
    message = job(1) if kind is Type.JOB else wire.HEADER.pack(wire.MAGIC, kind, 0, 0)
    effects = broker.hear(A, [update(1, 4) + message], 0.0, 0.0)
    [end] = ends(effects)
    assert isinstance(end.how, Processed), "what came before it counts"
    assert kinds(effects) == [("OK", 4), ("ERROR", 3)]
    assert clients(broker) == []


@given(st.lists(st.binary(max_size=80), max_size=6), st.booleans())
def test_nothing_that_a_client_sends_raises(chunks: list[bytes], greet: bool) -> None:
    broker = greeted(4) if greet else Broker(SECRET, lambda: bytes(32))
    if not greet:
        broker.joined(A, 0.0)
    for chunk in chunks:
        broker.hear(A, [b"\x47\xc0" + chunk], 0.0, 0.0)


@given(st.lists(st.binary(max_size=80), max_size=6))
def test_nothing_that_a_broker_sends_raises(chunks: list[bytes]) -> None:
    client = ready(4)
    for chunk in chunks:
        client.hear(b"", [b"\x47\xc0" + chunk], 0.0, 0.0)


# What crosses


def test_job_that_crosses_a_report_waits_for_ok() -> None:
    client = ready(2)
    client.hear(b"", [job(1)], 0.0, 0.0)
    assert [one.type for one in sent(client.ended(done(1)))] == [Type.UPDATE]
    assert client.hear(b"", [job(2), job(3)], 0.0, 0.0) == []
    assert client.hear(b"", [OK], 0.0, 0.0) == [Start(task(2)), Start(task(3))]


def test_more_jobs_than_processors_while_waiting_for_ok_are_an_overflow() -> None:
    client = ready(1)
    client.hear(b"", [job(1)], 0.0, 0.0)
    client.ended(done(1))
    client.hear(b"", [job(2)], 0.0, 0.0)
    assert kinds(client.hear(b"", [job(3)], 0.0, 0.0)) == [("ERROR", 1)]
    effects = client.hear(b"", [OK], 0.0, 0.0)
    assert Start(task(2)) in effects
    [report] = [wire.decode_update(one.body) for one in sent(effects)]
    assert (report.task, report.success, report.status) == (3, False, CANNOT_RUN)


def test_stop_while_waiting_for_ok_lowers_and_stop_at_once_ends() -> None:
    client = ready(2)
    client.hear(b"", [job(1)], 0.0, 0.0)
    client.ended(done(1))
    client.hear(b"", [wire.encode(Type.STOP, 1)], 0.0, 0.0)
    assert client.max_nproc == 1
    effects = client.hear(b"", [STOP_NOW], 0.0, 0.0)
    assert effects == [Leave("the broker stopped it at once", 0)]


def test_stop_ends_an_idle_client() -> None:
    for number in (wire.STOP_ALL, 2, 5):
        client = ready(2)
        [leave] = client.hear(b"", [wire.encode(Type.STOP, number)], 0.0, 0.0)
        assert isinstance(leave, Leave)
        assert leave.exit_code == 0


def test_stopped_client_finishes_its_tasks_and_leaves() -> None:
    client = ready(2)
    client.hear(b"", [job(1), job(2), wire.encode(Type.STOP, 0)], 0.0, 0.0)
    assert (client.max_nproc, client.nproc) == (0, 0)
    client.ended(done(1))
    assert client.hear(b"", [OK], 0.0, 0.0) == []
    client.ended(done(2))
    [leave] = client.hear(b"", [OK], 0.0, 0.0)
    assert isinstance(leave, Leave)


def test_two_tasks_that_end_together_are_reported_one_after_the_other() -> None:
    client = ready(2)
    client.hear(b"", [job(1), job(2)], 0.0, 0.0)
    first = client.ended(done(1))
    assert client.ended(done(2)) == []
    second = client.hear(b"", [OK], 0.0, 0.0)
    found = [wire.decode_update(one.body) for one in sent([*first, *second])]
    assert [(one.task, one.new_job) for one in found] == [(1, NewJob(1)), (2, NewJob(2))]


def test_what_ended_and_is_not_reported_yet_is_not_offered_as_free() -> None:
    client = ready(3)
    client.hear(b"", [job(1), job(2), job(3)], 0.0, 0.0)
    client.ended(done(1))
    client.ended(done(2))
    client.ended(done(3))
    [report] = [wire.decode_update(one.body) for one in sent(client.hear(b"", [OK], 0.0, 0.0))]
    assert (report.task, report.new_job) == (2, NewJob(2))


def test_ok_outside_an_exchange_is_ignored() -> None:
    client, broker = ready(2), greeted(2)
    assert client.hear(b"", [OK, OK], 0.0, 0.0) == []
    assert broker.hear(A, [OK], 0.0, 0.0) == []
    assert client.state == "CL_LOOP0"


def test_greeting_with_tasks_still_running_offers_what_is_free_and_then_reports_them() -> None:
    client = ready(4)
    client.hear(b"", [job(1), job(2)], 0.0, 0.0)
    client.joined(b"", 1.0)
    client.ended(done(1))
    assert kinds(client.hear(b"", [OK], 1.0, 1.0)) == [("OK", 3)]
    effects = client.hear(b"", [OK], 1.0, 1.0)
    assert [wire.decode_update(one.body).task for one in sent(effects)] == [1]


def test_unanswered_report_is_repeated_on_the_next_connection() -> None:
    client = ready(4)
    client.hear(b"", [job(1)], 0.0, 0.0)
    client.ended(done(1))
    client.joined(b"", 1.0)
    client.hear(b"", [OK], 1.0, 1.0)
    effects = client.hear(b"", [OK], 1.0, 1.0)
    assert [wire.decode_update(one.body).task for one in sent(effects)] == [1]


def test_task_that_runs_already_is_not_begun_again() -> None:
    client = ready(4)
    client.hear(b"", [job(1)], 0.0, 0.0)
    client.joined(b"", 1.0)
    client.hear(b"", [OK, OK, job(1)], 1.0, 1.0)
    assert client.nproc == 3
    assert [wire.decode_update(one.body).task for one in sent(client.ended(done(1)))] == [1]


def test_client_gets_all_its_processors_back_when_tasks_of_before_the_connection_end() -> None:
    broker = greeted(1)
    assert clients(broker)[0].slots == 1
    broker.hear(A, [update(99, free=2)], 0.0, 0.0)
    assert clients(broker)[0].slots == 2


def test_report_that_crosses_a_job_does_not_make_its_client_larger() -> None:
    broker = greeted(3)
    deal(broker, work(1), 0.0)
    broker.hear(A, [update(1, free=3)], 0.0, 0.0)
    deal(broker, work(2), 0.0)
    deal(broker, work(3), 0.0)
    broker.hear(A, [update(2, free=3)], 0.0, 0.0)
    assert [(one.slots, one.free) for one in clients(broker)] == [(3, 2)]


def test_stop_is_not_undone_by_a_report_that_crosses_it() -> None:
    broker = greeted(4)
    deal(broker, work(1), 0.0)
    broker.stop(3, 0.0)
    broker.hear(A, [update(1, free=4)], 0.0, 0.0)
    assert clients(broker)[0].slots == 1


# The secret


def pair(broker_secret: bytes | None, client_secret: bytes | None) -> tuple[Broker, Client]:
    broker = Broker(broker_secret, lambda: b"b" * 32)
    client = Client(4, client_secret, lambda: b"c" * 32)
    client.joined(b"", 0.0)
    return broker, client


def converse(broker: Broker, client: Client) -> list[object]:
    """The greeting, to its end; what is not sent."""
    others: list[object] = []
    effects: Effects = broker.joined(A, 0.0)
    while effects:
        others += [one for one in effects if not isinstance(one, Send)]
        answers = client.hear(b"", [sent_bytes(effects)], 0.0, 0.0)
        others += [one for one in answers if not isinstance(one, Send)]
        effects = broker.hear(A, [sent_bytes(answers)], 0.0, 0.0) if sent(answers) else []
    return others


def test_two_who_know_one_secret_greet_as_if_there_were_none() -> None:
    broker, client = pair(SECRET, SECRET)
    assert converse(broker, client) == []
    assert client.state == "CL_LOOP0"
    assert [one.slots for one in clients(broker)] == [4]


def test_client_that_does_not_know_the_secret_is_cut_off() -> None:
    broker, client = pair(SECRET, b"another")
    others = converse(broker, client)
    assert any(isinstance(one, Close) for one in others)
    assert clients(broker) == []
    words = "the broker does not know our secret: see --secret-file on both sides"
    assert Say(0, words) in others


def test_broker_says_once_a_minute_that_somebody_does_not_know_the_secret() -> None:
    broker = Broker(SECRET, lambda: b"b" * 32)
    told = []
    for now in (5.0, 6.0, 64.0, 66.0):
        broker.joined(A, now)
        effects = broker.hear(A, [wire.encode_body(Type.AUTH, bytes(64))], now, 0.0)
        told += [now for one in effects if isinstance(one, Say) and one.level == 0]
    assert told == [5.0, 66.0]


def test_client_leaves_a_broker_that_asks_for_a_secret_it_has_not() -> None:
    others = converse(*pair(SECRET, None))
    assert [one.exit_code for one in others if isinstance(one, Leave)] == [77]


def test_client_with_a_secret_leaves_a_broker_that_asks_for_none() -> None:
    others = converse(*pair(None, SECRET))
    assert [one.exit_code for one in others if isinstance(one, Leave)] == [77]


def test_client_leaves_a_broker_that_cannot_prove_itself() -> None:
    client = Client(4, SECRET, lambda: b"c" * 32)
    client.joined(b"", 0.0)
    client.hear(b"", [wire.encode_body(Type.AUTH, b"b" * 32)], 0.0, 0.0)
    [leave] = client.hear(b"", [wire.encode_body(Type.AUTH, bytes(32))], 0.0, 0.0)
    assert isinstance(leave, Leave)
    assert leave.exit_code == 77


def test_proof_of_one_side_is_none_of_the_other() -> None:
    nonces = (b"b" * 32, b"c" * 32)
    assert wire.client_proof(SECRET, *nonces) != wire.broker_proof(SECRET, *nonces)
    client = Client(4, SECRET, lambda: b"c" * 32)
    client.joined(b"", 0.0)
    [answer] = sent(client.hear(b"", [wire.encode_body(Type.AUTH, nonces[0])], 0.0, 0.0))
    [leave] = client.hear(b"", [wire.encode_body(Type.AUTH, answer.body[32:])], 0.0, 0.0)
    assert isinstance(leave, Leave)


def test_unproven_client_gets_nowhere() -> None:
    broker = Broker(SECRET, lambda: b"b" * 32)
    broker.joined(A, 0.0)
    effects = broker.hear(A, [wire.encode(Type.OK, 4)], 0.0, 0.0)
    assert kinds(effects) == [("ERROR", 3)]
    assert takes(broker, 7, 1, 0.0) is None


# The tables


def test_every_state_of_the_description_is_there() -> None:
    seed = [row for row in CLIENT.rows if not row.ours]
    assert len({row.state for row in seed}) == 7
    seed = [row for row in SERVER.rows if not row.ours]
    assert len({row.state for row in seed}) == 8


@given(st.sampled_from([CLIENT, SERVER]), st.text(max_size=3), st.text(max_size=3))
def test_what_is_not_in_a_table_is_the_peer_s_mistake(table: Table, state: str, event: str) -> None:
    with pytest.raises(RemoteProtocolError):
        table.step(state, event + "?")


# Counting


class Pools(RuleBasedStateMachine):
    """A broker, its clients, and every order in which what they say may arrive."""

    peers: Bundle[bytes] = Bundle("peers")

    def __init__(self) -> None:
        super().__init__()
        self.broker = Broker()
        self.clients: dict[bytes, Client] = {}
        self.up: dict[bytes, deque[bytes]] = {}
        self.down: dict[bytes, deque[bytes]] = {}
        self.running: dict[bytes, dict[int, Task]] = {}
        self.serial = 0
        self.connections = 0
        # By claim: what it ended with.
        self.dealt: set[str] = set()
        self.over: set[str] = set()
        self.refusals: list[str] = []
        # A name on the wire is one connection's.
        self.wire_name: dict[bytes, bytes] = {}

    @initialize(target=peers)
    def begin_with_two(self) -> MultipleResults[bytes] | bytes:
        return multiple(*(self._settled(3) for _ in range(2)))

    def _settled(self, nproc: int) -> bytes:
        """A client past its greeting."""
        peer = self._add(nproc)
        for _ in range(3):
            self.to_the_client(peer, 5)
            self.to_the_broker(peer, 5)
        return peer

    def _connect(self, peer: bytes) -> None:
        self.connections += 1
        name = str(self.connections).encode()
        self.wire_name[peer] = name
        self.up[peer], self.down[peer] = deque(), deque()
        self._client(peer, self.clients[peer].joined(b"", 0.0))
        self._broker(self.broker.joined(name, 0.0))

    def _peer(self, name: bytes) -> bytes | None:
        return next((peer for peer, wired in self.wire_name.items() if wired == name), None)

    def _broker(self, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                peer = self._peer(effect.peer)
                if peer is not None:
                    self.down[peer].extend(effect.frames)
            elif isinstance(effect, End):
                self._end(effect.claim)
                if isinstance(effect.how, Released):
                    self.refusals.append(effect.claim)

    def _end(self, claim: str) -> None:
        assert claim in self.dealt
        assert claim not in self.over, "a claim ends once"
        self.over.add(claim)

    def _client(self, peer: bytes, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self.up[peer].extend(effect.frames)
            elif isinstance(effect, Start):
                self.running[peer][effect.task.task] = effect.task
            else:
                assert isinstance(effect, Leave), effect

    @rule(target=peers, nproc=st.integers(1, 6))
    def join(self, nproc: int) -> bytes:
        return self._add(nproc)

    def _add(self, nproc: int) -> bytes:
        peer = b"c%d" % len(self.clients)
        self.clients[peer] = Client(nproc)
        self.running[peer] = {}
        self._connect(peer)
        return peer

    @rule(peer=peers)
    def reconnect(self, peer: bytes) -> None:
        if not self.clients[peer].over:
            self._broker(self.broker.gone(self.wire_name[peer], 0.0))
            self._connect(peer)

    @rule(need=st.sampled_from([1, 1, 1, 2, 3, 6]), times=st.integers(1, 4))
    def submit(self, need: int, times: int) -> None:
        for _ in range(times):
            if takes(self.broker, 7, need, 0.0) is not None:
                self.serial += 1
                self.dealt.add(f"7.{self.serial}")
                self._broker(deal(self.broker, work(self.serial, need), 0.0))

    @rule(peer=peers, count=st.integers(1, 5))
    def to_the_client(self, peer: bytes, count: int) -> None:
        for _ in range(count):
            if self.down[peer] and not self.clients[peer].over:
                self._client(
                    peer, self.clients[peer].hear(b"", [self.down[peer].popleft()], 0.0, 0.0)
                )

    @rule(peer=peers, count=st.integers(1, 5))
    def to_the_broker(self, peer: bytes, count: int) -> None:
        for _ in range(count):
            if self.up[peer]:
                chunk = self.up[peer].popleft()
                self._broker(self.broker.hear(self.wire_name[peer], [chunk], 0.0, 0.0))

    @rule(peer=peers, which=st.integers(0, 5))
    def end_a_task(self, peer: bytes, which: int) -> None:
        running = self.running[peer]
        if running:
            number = sorted(running)[which % len(running)]
            del running[number]
            self._client(peer, self.clients[peer].ended(done(number)))

    @rule(peer=peers, number=st.sampled_from([0, 1, 2]))
    def stop(self, peer: bytes, number: int) -> None:
        self._broker(self.broker.stop(number, 0.0, {self.wire_name[peer]}))

    @invariant()
    def no_client_runs_more_than_it_has(self) -> None:
        for peer, client in self.clients.items():
            taken = sum(one.description.num_proc for one in self.running[peer].values())
            assert taken <= client.max_proc

    @invariant()
    def broker_never_thinks_a_client_larger_than_it_is(self) -> None:
        limits = {one.name: one.slots for one in clients(self.broker)}
        for peer, client in self.clients.items():
            if not client.over:
                assert limits.get(self.wire_name[peer], 0) <= client.max_nproc

    @invariant()
    def no_client_had_to_refuse(self) -> None:
        assert self.refusals == []

    @precondition(lambda self: self.clients)
    @rule()
    def come_to_rest(self) -> None:
        """Everything arrives, all tasks end: nothing is lost, every processor is free again."""
        while any(map(any, (self.up.values(), self.down.values(), self.running.values()))):
            for peer in self.clients:
                self.to_the_client(peer, 100)
                self.end_a_task(peer, 0)
                self.to_the_broker(peer, 100)
                if self.clients[peer].over:
                    self.down[peer].clear()
        assert self.dealt == self.over
        for peer, client in self.clients.items():
            seen = {one.name: one for one in clients(self.broker)}
            if not client.over:
                assert client.nproc == client.max_nproc
                assert seen[self.wire_name[peer]].slots <= client.max_nproc


Pools.TestCase.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)


TestPools = Pools.TestCase
