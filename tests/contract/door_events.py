"""What may befall a front door, and what becomes of documents and requests then: the contract.

Each row is a test of its name in one of the modules beside this one, for each of the four
protocols; docs/network.rst prints the rows.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

# Why a row does not concern a protocol at all.
_NO_CLIENTS = {
    "pingpong": "there are no clients",
    "fuq": "clients are what does the work; who has a job puts it into the queue",
}
_NO_WORD = {
    "roundrobin": "there is no word for that: workers stay, and wait for a broker",
    "fuq": "clients stay, and wait for a broker",
}


class Row(NamedTuple):
    """One row."""

    name: str
    # What befalls the door, and what becomes of documents then.
    befalls: str
    happens: str
    # The protocols at which something else happens, and what.
    differs: Mapping[str, str] = {}
    # The protocols that have nothing of the kind, and why.
    absent: Mapping[str, str] = {}
    # The protocols at which it is not yet true, and why.
    not_yet: Mapping[str, str] = {}


class Group(NamedTuple):
    """Rows about one thing."""

    title: str
    # What is over the first column.
    heading: str
    rows: Sequence[Row]


WORKERS = Group(
    "A worker",
    "If it",
    (
        Row(
            "worker_that_answers_gets_its_document_published_once",
            "answers",
            "its document is published, once and byte for byte",
        ),
        Row(
            "documents_that_never_reached_their_workers_cost_nothing",
            "has vanished by the time that a document is sent to it, as 99 others have",
            "the document is given back, uncharged, and dealt to whoever is there",
        ),
        Row(
            "worker_that_is_killed_costs_its_document_an_attempt",
            "is killed with one document in hand",
            "that document is charged an attempt (``worker-lost``); the second one discards it",
        ),
        Row(
            "poison_document_costs_those_beside_it_nothing",
            "is ended by one of the ten documents it has in hand, as is whoever gets it next",
            "that one is discarded in the end; the nine beside it are published, uncharged",
            {
                "fuq": "each task is a process of its own: all that a lost client had are charged",
            },
        ),
        Row(
            "document_that_failed_is_dealt_alone_from_then_on",
            "says that a document failed, and has others in hand",
            "that document waits until some worker has nothing in hand, and nothing is dealt to "
            "that worker behind it",
            {
                "fuq": "a task that did not succeed is not tried again: that is its result, and "
                "published",
            },
        ),
        Row(
            "late_result_is_dropped",
            "answers when its document was taken from it and given to another",
            "its answer is dropped; that of the other is published",
        ),
        Row(
            "overdue_document_is_charged_and_dealt_to_another",
            "has had a document for longer than ``--job-timeout``",
            "the document is charged an attempt, and dealt to another worker",
        ),
        Row(
            "idle_worker_that_is_silent_is_dealt_nothing",
            "has nothing in hand and says nothing for longer than the protocol allows",
            "it is dealt nothing more until it speaks again",
            {
                "roundrobin": "workers need not say anything: its connection says that it is there",
                "fuq": "clients need not say anything: its connection says that it is there",
            },
        ),
        Row(
            "slow_worker_keeps_its_document_however_silent_it_is",
            "is at work on a document, and says nothing for however long",
            "it keeps the document, and its answer is published",
        ),
        Row(
            "worker_that_answers_twice_is_heard_once",
            "answers a document twice",
            "the second answer is dropped; that to the next document is not taken for it",
        ),
        Row(
            "worker_that_leaves_is_dealt_nothing_more",
            "says goodbye, with nothing in hand",
            "it is dealt nothing more",
        ),
        Row(
            "document_of_a_worker_that_leaves_is_given_back_uncharged",
            "says goodbye, with a document in hand",
            "the document is given back, uncharged",
            {
                "roundrobin": "it may still answer what it has in hand, and gets nothing new",
                "fuq": "it has no word for that: to the broker it is lost, and its tasks are "
                "charged",
            },
        ),
    ),
)

BROKERS = Group(
    "The broker",
    "If it",
    (
        Row(
            "broker_that_drains_ends_when_all_is_done_and_tells_its_workers",
            "runs with ``--drain``",
            "it ends with 0 when its queue is empty, and tells its workers to leave",
            _NO_WORD,
        ),
        Row(
            "broker_that_is_asked_to_leave_waits_for_what_is_at_hand",
            "gets TERM",
            "it deals nothing more, publishes what workers have within ``--grace``, and ends with "
            "0; workers stay, and wait for a broker",
        ),
        Row(
            "broker_that_finds_a_quit_file_waits_for_what_is_at_hand",
            "finds a ``QUIT`` file",
            "the same, but workers are told to leave",
            _NO_WORD,
        ),
        Row(
            "broker_whose_time_ends_gives_back_what_is_at_hand_and_leaves",
            "comes to the end of its time (``--until``), and workers are not done",
            "ten seconds before, their documents are given back, uncharged, and it leaves",
        ),
        Row(
            "broker_whose_grace_is_over_gives_back_what_is_at_hand",
            "finds a ``QUIT`` file, and workers are not done within ``--grace``",
            "their documents are given back, uncharged",
        ),
        Row(
            "broker_that_is_paused_deals_nothing_and_takes_in_results",
            "finds a ``PAUSE`` file",
            "it deals nothing until that is gone, and publishes what workers bring",
        ),
        Row(
            "broker_that_is_killed_costs_nothing",
            "is killed while workers have documents, and another is started",
            "these documents are given back, uncharged, and published once",
        ),
        Row(
            "results_for_a_broker_that_was_killed_are_dropped",
            "is killed, and a worker brings its successor what it got from it",
            "that is dropped; the document is published once",
        ),
        Row(
            "nonsense_ends_no_broker_and_costs_no_other_worker",
            "is sent what is no message of its protocol",
            "it goes on; what others have in hand is published",
        ),
    ),
)

DISKS = Group(
    "The file system of the queues",
    "If it",
    (
        Row(
            "full_disk_costs_time_alone",
            "is full when a worker answers",
            "the broker waits; when there is room the document is published, uncharged",
        ),
        Row(
            "output_that_is_moved_away_costs_time_alone",
            "loses the output queue, which is moved away and back",
            "the broker waits; when it is back the document is published, uncharged",
        ),
        Row(
            "input_that_is_moved_away_ends_the_broker_and_costs_nothing",
            "loses the input queue, which is moved away and back",
            "the broker ends with 66 when it has nothing at hand, as any driver does; the next one "
            "goes on, and everything is published once, uncharged",
        ),
    ),
)

CLIENTS = Group(
    "A client",
    "If it",
    (
        Row(
            "client_that_asks_is_answered_once",
            "asks",
            "it gets the answer of a worker",
            absent=_NO_CLIENTS,
        ),
        Row(
            "client_that_is_back_within_a_minute_gets_its_answer",
            "is away when its answer comes, and back within a minute",
            "it gets the answer as soon as it says anything",
            absent=_NO_CLIENTS,
        ),
        Row(
            "request_that_is_repeated_is_done_once",
            "asks the same again, before it is answered and after",
            "the request is done once, and each question is answered",
            absent=_NO_CLIENTS,
        ),
        Row(
            "request_outlives_its_broker",
            "asks, and the broker is killed before a worker has answered",
            "the next broker deals the request anew, and the client gets its answer",
            absent=_NO_CLIENTS,
        ),
        Row(
            "request_whose_worker_is_killed_is_dealt_to_another",
            "asks, and the worker that has its request is killed",
            "another one gets it, and the client its answer",
            absent=_NO_CLIENTS,
        ),
        Row(
            "request_whose_workers_are_all_killed_is_refused_in_the_end",
            "asks, and each worker that gets its request is killed",
            "the request is discarded after ``--retries``, and the client is told so, each time it "
            "asks the same again; at roundrobin where it asks for a document, no other command",
            absent=_NO_CLIENTS,
        ),
        Row(
            "request_that_no_worker_takes_in_time_is_refused",
            "asks, and there is no worker for longer than the protocol allows",
            "it is told so, and no worker sees the request, unless it asks again",
            {"roundrobin": "requests wait for as long as it takes"},
            absent=_NO_CLIENTS,
        ),
        Row(
            "request_that_never_reached_its_worker_is_dealt_to_another",
            "asks, and the worker that is sent its request has vanished",
            "another one gets it, and the client its answer",
            absent=_NO_CLIENTS,
        ),
    ),
)

GROUPS = (WORKERS, BROKERS, DISKS, CLIENTS)
ROWS = {row.name: row for group in GROUPS for row in group.rows}
