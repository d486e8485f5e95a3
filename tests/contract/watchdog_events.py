"""What may befall a watchdog on a real host, what it does, and within what time: the contract.

Each row is a test of its name in one of the modules beside this one, which makes it happen to real
processes; docs/reliability.rst prints the rows that hold.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Event(NamedTuple):
    """One row."""

    name: str
    # What befalls the host, and what is seen then.
    befalls: str
    happens: str
    # Until that is seen, on a host whose processors are not overbooked.
    seconds: float
    # What happens instead, while the row does not hold.
    instead: str = ""


class Group(NamedTuple):
    """Rows about one thing."""

    title: str
    # What is over the first column.
    heading: str
    rows: Sequence[Event]


DRIVERS = Group(
    "A driver",
    "If it",
    (
        Event(
            "driver_that_is_killed_is_replaced",
            "is killed while it has a document",
            "another one takes its place, and the document is tried again; that try was counted",
            3,
        ),
        Event(
            "document_that_ends_its_driver_is_discarded_with_how_it_ended",
            "ends by itself because of a document: by an exit code, or in C code by a signal",
            "at the second try the document is discarded, with the exit code or the signal in its "
            "report; the others go on",
            10,
        ),
        Event(
            "document_that_sleeps_is_discarded_and_its_driver_goes_on",
            "sleeps in a document for longer than its ``timeout``",
            "the document is charged; the driver goes on with the next one",
            3,
        ),
        Event(
            "driver_whose_c_code_holds_the_lock_is_ended_with_its_stacks",
            "hangs in C code that holds the interpreter's lock, past ``timeout`` and "
            "``hard_after``",
            "it is ended, and replaced; the stacks are in the document's report",
            10,
        ),
        Event(
            "driver_that_ignores_everything_is_ended",
            "hangs and lets neither a signal nor an exception through",
            "it is ended, and replaced",
            10,
        ),
        Event(
            "driver_that_takes_too_much_memory_is_ended",
            "takes more memory than ``max_memory`` and a quarter",
            "it is ended, and replaced; the document is charged, the others are not",
            5,
        ),
        Event(
            "what_a_document_sent_away_ends_with_its_driver",
            "is killed after its document has started a daemon",
            "the daemon ends; with ``preload`` it ends with the watchdog at the latest",
            5,
        ),
        Event(
            "driver_that_stands_still_past_its_limits_is_ended",
            "stands still (SIGSTOP) past ``timeout`` and ``hard_after``",
            "it is ended, and replaced",
            15,
        ),
        Event(
            "driver_that_stood_still_goes_on",
            "stands still within its limits, and goes on",
            "nothing; the others work meanwhile",
            3,
        ),
        Event(
            "stage_that_cannot_start_is_left_alone_until_a_restart",
            "cannot start: its server ends at once",
            "the stage is ``degraded``, the other stages go on; ``restart`` brings it back once it "
            "is mended",
            10,
        ),
        Event(
            "status_of_a_pipeline_of_which_nothing_works_does_not_end_with_0",
            "is crash-looped, like all others, and documents wait",
            "``status`` says so, and does not end with 0",
            10,
        ),
        Event(
            "stage_whose_import_fails_for_a_while_recovers_by_itself",
            "cannot load, since a server that its module asks does not answer",
            "the other stages go on; when the server answers, the stage does",
            10,
        ),
        Event(
            "drain_of_a_stage_that_can_never_work_ends",
            "can never start (a module that is not there), with ``run --drain``",
            "the watchdog ends with exit code 78, and says which stage and why; so does ``status``",
            10,
        ),
        Event(
            "driver_that_not_even_sigkill_ends_is_replaced",
            "hangs in the kernel, where SIGKILL does not reach it",
            "another one does its work under the next number; it keeps no watchdog from leaving",
            30,
        ),
    ),
)

PROCESSES = Group(
    "Another process of the watchdog",
    "If",
    (
        Event(
            "helper_that_stands_still_costs_time_alone",
            "the process that looks after the queues stands still (SIGSTOP), and goes on",
            "``waiting-fs``: nothing is started, no time limit counts; documents at hand go on",
            5,
        ),
        Event(
            "helper_that_is_killed_is_replaced",
            "the process that looks after the queues is killed",
            "another one takes its place; a drain ends all the same",
            10,
        ),
        Event(
            "driver_is_replaced_though_the_helper_was_killed_with_it",
            "the process that looks after the queues and a driver are killed at once",
            "the driver is replaced at once, the other soon; ``status`` says that it is not there",
            3,
        ),
        Event(
            "template_that_stands_still_is_replaced",
            "what drivers are forked from (``preload``) stands still, and a driver dies",
            "after 30 s, or ``startup_timeout`` if that is less (2 s in this test), it is loaded "
            "anew; no driver waits for the end of the one before",
            15,
        ),
        Event(
            "template_that_is_killed_is_loaded_again",
            "what drivers are forked from (``preload``) is killed",
            "it is loaded again before the next driver is needed; its drivers go on",
            5,
        ),
        Event(
            "warden_that_is_killed_is_replaced",
            "the warden is killed",
            "another one takes its place",
            15,
        ),
        Event(
            "warden_that_stood_still_ends_what_is_left_when_it_goes_on",
            "the warden stands still while the watchdog is killed, and goes on",
            "what the watchdog left behind is ended",
            10,
        ),
        Event(
            "command_for_events_that_hangs_keeps_nobody",
            "an event's command hangs, deaf to SIGTERM",
            "the pipeline goes on; the command ends with the watchdog",
            15,
        ),
        Event(
            "watchdog_that_stands_still_says_so_and_goes_on",
            "the watchdog stands still (SIGSTOP), and goes on",
            "drivers go on; ``status`` ends with 4 when it has said nothing for a minute; a "
            "driver that died meanwhile is replaced afterwards",
            15,
        ),
    ),
)

KILLED = Group(
    "The watchdog is killed",
    "It is killed",
    (
        Event(
            "drivers_of_a_killed_watchdog_finish_and_leave",
            "while drivers have documents",
            "they finish these within their stage's ``grace``, and leave",
            3,
        ),
        Event(
            "what_hears_nothing_does_not_outlive_the_watchdog",
            "while drivers hear no signal (lock held, SIGTERM ignored or masked), or a daemon runs "
            "that a document has started",
            "these are ended 5 s after the ``grace`` of their stage is over",
            12,
        ),
        Event(
            "each_driver_of_a_killed_watchdog_has_its_own_grace",
            "while the drivers of one stage have an hour, and those of another none",
            "each has its own",
            10,
        ),
        Event(
            "watchdog_that_is_killed_while_the_root_hangs_leaves_nothing",
            "while the file system of the queues hangs",
            "what can be ended is ended; the rest ends when the file system answers",
            10,
        ),
        Event(
            "watchdog_that_is_killed_without_a_helper_leaves_nothing",
            "right after the process that looks after the queues",
            "the same as with one",
            10,
        ),
        Event(
            "drivers_to_be_adopted_outlive_the_watchdog_and_are_adopted",
            "with ``adopt = true``",
            "drivers go on; the next watchdog takes them over, and replaces them when they die",
            5,
        ),
        Event(
            "driver_that_has_only_begun_ends_with_a_killed_watchdog_that_adopts",
            "with ``adopt = true``, while a driver is so new that nobody could find it later",
            "that one ends with it; the next watchdog starts another",
            10,
        ),
        Event(
            "template_that_hears_nothing_ends_with_a_killed_watchdog_that_adopts",
            "with ``adopt = true``, while what drivers are forked from (``preload``) loads and "
            "ignores SIGTERM",
            "it ends",
            3,
        ),
        Event(
            "command_that_hears_nothing_ends_with_a_killed_watchdog_that_adopts",
            "with ``adopt = true``, while an event's command ignores SIGTERM",
            "it is ended after 5 s; drivers go on",
            10,
        ),
        Event(
            "what_an_adopted_driver_sent_away_ends_with_it",
            "with ``adopt = true``, after a document has started a daemon; its driver dies under "
            "the next watchdog",
            "the daemon ends",
            5,
        ),
        Event(
            "next_watchdog_lets_the_drivers_finish",
            "and the next one is started while drivers finish their documents",
            "it waits for them, and begins no document twice",
            5,
        ),
    ),
)

HOST = Group(
    "The host",
    "If",
    (
        Event(
            "full_local_disk_stops_nobody",
            "the disk of the watchdog's own records is full, and a driver dies",
            "the driver is replaced; documents go on",
            10,
        ),
        Event(
            "records_that_are_removed_are_made_again",
            "the directory of the watchdog's own records is removed, and a driver dies",
            "it is made again; documents go on, and the driver is replaced",
            20,
        ),
        Event(
            "full_disk_of_the_queues_costs_time_alone",
            "the disk of the queues is full for a while",
            "``waiting-fs``; no document is charged, and all goes on when there is room",
            20,
        ),
        Event(
            "status_answers_while_the_root_hangs",
            "the file system of the queues hangs, and ``status`` is typed",
            "it answers: the file system does not, and what the watchdog of this host says",
            5,
        ),
        Event(
            "term_is_heard_while_the_root_hangs",
            "the file system of the queues hangs, and TERM is sent",
            "it is heard; the watchdog leaves when all has ended that can be",
            1,
        ),
        Event(
            "root_that_is_moved_away_is_waited_for",
            "the root is moved away, and back",
            "``waiting-fs``; no other root is made; all goes on when it is back",
            20,
        ),
        Event(
            "clock_that_is_stepped_costs_nothing",
            "the clock is set an hour ahead, and two hours back",
            "documents go on; nobody is charged, ended or given up",
            10,
        ),
        Event(
            "host_with_few_descriptors_runs_the_drivers_it_can",
            "a process may open 32 files (``ulimit -n``), and 30 drivers are asked for",
            "as many run as can; the others are in ``backoff``; TERM is heard",
            20,
        ),
        Event(
            "watchdog_runs_whichever_descriptors_are_closed",
            "stdin, stdout or stderr are closed at the start",
            "nothing",
            10,
        ),
        Event(
            "host_that_is_wanted_back_is_left_in_time",
            "is wanted back at an instant (``run --until``), while documents are at hand",
            "ten seconds before they are given back, and the watchdog leaves",
            5,
        ),
        Event(
            "drivers_that_are_killed_while_they_leave_cost_nothing",
            "is wanted back at once: TERM, and everything is killed long before the ``grace`` is "
            "over, time and again",
            "documents are given back, uncharged, by the next one to come",
            10,
        ),
        Event(
            "drivers_that_are_killed_with_their_watchdog_cost_nothing",
            "has all processes killed at once",
            "the same; but the third time is charged, as a document may be to blame",
            10,
        ),
    ),
)

OPERATORS = Group(
    "People",
    "If",
    (
        Event(
            "term_is_heard_while_many_drivers_start",
            "TERM is sent while a hundred drivers start",
            "it is heard at once; no further drivers are started",
            1,
        ),
        Event(
            "terminal_that_stands_still_keeps_nobody",
            "whoever is shown its words takes none: Ctrl-S, a pager, a connection that hangs",
            "documents go on, and TERM is heard; how many messages were left out is said once they "
            "are taken again",
            1,
        ),
        Event(
            "stages_leave_from_the_first_to_the_last",
            "TERM is sent while documents are at hand",
            "each is finished; a stage's drivers leave once those of the stage before have left",
            5,
        ),
        Event(
            "end_is_the_same_however_often_it_is_asked_for",
            "the watchdog is told to leave again and again, until it is gone",
            "it ends once, with the exit code of its end",
            10,
        ),
        Event(
            "documents_are_given_back_when_it_is_told_twice",
            "TERM is sent twice, QUIT once, or ``stop --now`` is typed",
            "documents are given back at once, uncounted",
            5,
        ),
        Event(
            "quit_file_is_for_the_watchdogs_that_run",
            "``stop`` is typed, and a watchdog started later",
            "those that run leave; the later one works",
            5,
        ),
        Event(
            "control_file_is_there_at_the_first_start",
            "any control file is there at the first start, for any kind of stage",
            "it is obeyed, or forgotten if the start is the later wish",
            15,
        ),
        Event(
            "every_control_file_is_there_at_the_first_start",
            "all control files are there at the first start",
            "they are obeyed; ``resume`` lets documents go on",
            15,
        ),
        Event(
            "number_outlives_the_watchdog_that_it_was_said_to",
            "``scale`` is said to one watchdog, and another one is started",
            "it holds for that one too, also for a stage with ``drivers = 0``",
            15,
        ),
        Event(
            "stage_without_drivers_gets_them_while_it_runs",
            "stages with ``drivers = 0`` are scaled up while the watchdog runs",
            "they get their drivers",
            10,
        ),
        Event(
            "stage_that_a_reload_adds_gets_what_was_asked_for_before",
            "a reload brings stages for which numbers were said before",
            "they get their drivers",
            10,
        ),
        Event(
            "huge_number_is_asked_back",
            "``scale one=9999`` is typed where nobody can be asked",
            "it is refused with 2, and nothing is changed; with ``--yes`` it is said, and the host "
            "gets what there is room for",
            10,
        ),
        Event(
            "stage_that_comes_back_before_its_driver_has_left_goes_on",
            "a reload takes a stage out and another brings it back, before its driver has left",
            "that driver finishes its document, and one takes the next",
            5,
        ),
        Event(
            "reload_with_a_typo_leaves_the_drivers_at_work",
            "a reload has a typo in ``call``",
            "``status`` says so; the drivers of before go on",
            10,
        ),
        Event(
            "document_at_hand_keeps_the_limits_that_its_driver_was_told",
            "a reload has a smaller ``timeout`` than the document at hand has taken",
            "it is finished, and not charged; the next one has the new limit",
            5,
        ),
        Event(
            "drivers_that_disagree_with_an_old_one_come_when_it_has_left",
            "a watchdog is started with other ``retries`` while a driver of an earlier one "
            "finishes",
            "its own drivers wait for that one, and come by themselves",
            15,
        ),
        Event(
            "claims_of_other_settings_are_recovered_before_many_drivers_come",
            "everything is killed while a document is at hand, and a watchdog starts with other "
            "``retries`` and many drivers",
            "the document is given back as its driver would have done, and tried again",
            20,
        ),
        Event(
            "second_watchdog_on_one_pipeline_is_refused",
            "a second watchdog is started on one host",
            "it ends with 69 and names the first, which goes on",
            5,
        ),
        Event(
            "second_watchdog_with_other_records_is_refused",
            "a second watchdog of one name is started, with another ``$WATCHDOGD_STATE``",
            "the same",
            5,
        ),
        Event(
            "burst_into_closed_queues_loads_no_model_again",
            "``put --reopen`` into closed and drained queues, three times, where a model "
            "takes more than a second to load",
            "each burst goes through all stages; no driver is started for it",
            10,
        ),
    ),
)

STAGES = Group(
    "Kinds of stages",
    "If",
    (
        Event(
            "stage_of_each_kind_is_kept_and_drained",
            "the drivers of a ``call``, ``preload``, ``command`` and ``server`` are killed",
            "each is replaced; a drain takes everything through",
            15,
        ),
        Event(
            "broker_is_a_stage_like_any_other",
            'the driver of a stage with ``broker = "pingpong"`` is killed',
            "it is replaced, and its workers go on; a drain takes everything through",
            15,
        ),
        Event(
            "broker_and_its_workers_heed_control_files_and_drain",
            "control files are there at the first start of a broker's stage and of its workers'",
            "they are obeyed; a drain takes everything through, and ends",
            15,
        ),
        Event(
            "worker_is_a_stage_like_any_other",
            'the driver of a stage with ``worker = "pingpong"`` is killed',
            "it is replaced; what it had is dealt again, and its stage leaves when asked to",
            15,
        ),
    ),
)

GROUPS = (DRIVERS, PROCESSES, KILLED, HOST, OPERATORS, STAGES)
EVENTS = {row.name: row for group in GROUPS for row in group.rows}
