"""A pipeline whose processes are killed at random takes every document through once.

The small edition of `python -m tests.crash.chaos`, and whether its account would see a violation.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from queuedriver.format.records import Attempt, Failure, Report
from tests.crash.chaos import figures, post_mortem
from tests.crash.chaos_count import (
    Discard,
    Found,
    Processing,
    at_once,
    judge,
    look,
    processings,
)
from tests.crash.chaos_documents import Submission, submissions
from tests.crash.chaos_faults import Role, role_of
from tests.crash.chaos_layout import Orders
from tests.crash.chaos_run import Chaos

CAMPAIGN = pytest.mark.campaign
RETRIES = 1
GOOD = Submission("good-any-1", b"text", {"good-any-1.xml": b"TEXT"})
TWIN = Submission("twin-one-2", b"text", {"twin-one-2.xml": b"TEXT", "twin-one-2.b.xml": b"TXET"})
NONE = Submission("none-one-3", b"text", {})
WRONG = Submission("wrong-one-4", b"text", {}, "input", b"text")
POISON = Submission("poison-two-5", b"text", {}, "one", b"text one")
ALL = (GOOD, TWIN, NONE, WRONG, POISON)

USUAL = Orders(documents=600, seconds=8.0, kills=40, every=0.1)
# What else a run may be like: for whoever has changed the hand-off, or how drivers are kept.
MORE_RUNS = {
    "together": USUAL._replace(documents=200, seconds=3.0, kills=12, together=True),
    "adopt": USUAL._replace(seed=8, adopt=True),
    "adopt-together": USUAL._replace(seed=9, adopt=True, together=True),
    "durable-batch": USUAL._replace(seed=10, durable=True, batch=4),
}


@pytest.mark.parametrize(
    "orders",
    [
        pytest.param(USUAL, id="usual"),
        *(pytest.param(one, id=name, marks=CAMPAIGN) for name, one in MORE_RUNS.items()),
    ],
)
def test_nothing_is_lost_and_nothing_twice_whoever_is_killed(
    tmp_path: Path, orders: Orders
) -> None:
    outcome = Chaos(orders, tmp_path / "chaos").run()
    print(*figures(outcome, tmp_path / "chaos"), sep="\n")
    assert not outcome.complaints, "\n".join(post_mortem(outcome, tmp_path / "chaos"))
    assert outcome.faults.kills >= orders.kills
    # Poison of each stage, at the least.
    assert len(outcome.found.discards) >= 3


# The account


def report(docid: str, cause: str, attempts: Sequence[int], permanent: bool = False) -> Report:
    failure = Failure(cause=cause, message="", permanent=permanent)
    tries = [
        Attempt(docid=docid, token=f"d-{number}", attempt=number, driver="d", host="h",
                claimed_at=0.0, ended_at=1.0, counted=True, failure=failure)
        for number in attempts
    ]  # fmt: skip
    return Report(docid=docid, queue="q", discarded_at=1.0, driver="d", host="h", failure=failure,
                  attempts=tuple(tries))  # fmt: skip


WELL = Found(
    results={"good-any-1.xml": b"TEXT", "twin-one-2.xml": b"TEXT", "twin-one-2.b.xml": b"TXET"},
    discards=(
        Discard("input", "wrong-one-4", b"text", report("wrong-one-4", "no", [0], permanent=True)),
        Discard("one", "poison-two-5", b"text one", report("poison-two-5", "crashed", [0, 1])),
    ),
    left=(),
    broken=(),
    processings=(Processing("one", "none-one-3", 1.0, 2.0),),
    events=Counter(),
    litter=Counter(),
)  # fmt: skip


def kinds(found: Found) -> list[str]:
    return [one.kind for one in judge(ALL, found, RETRIES)]


def results(changed: Mapping[str, bytes | None]) -> Found:
    """All is well but for these results; None: there is none."""
    found = {**WELL.results, **changed}
    return WELL._replace(results={name: data for name, data in found.items() if data is not None})


def discards(*changed: Discard) -> Found:
    """All is well but for these discards."""
    docids = {one.docid for one in changed}
    kept = [one for one in WELL.discards if one.docid not in docids]
    return WELL._replace(discards=(*kept, *changed))


def test_account_of_a_good_run_has_no_complaint() -> None:
    assert kinds(WELL) == []


def test_document_that_came_out_nowhere_is_lost() -> None:
    assert kinds(results({"good-any-1.xml": None})) == ["lost"]


def test_second_output_that_is_missing_is_lost() -> None:
    assert kinds(results({"twin-one-2.b.xml": None})) == ["lost"]


def test_document_without_outputs_that_nobody_processed_is_lost() -> None:
    assert kinds(WELL._replace(processings=())) == ["lost"]


def test_second_copy_is_a_double() -> None:
    assert kinds(results({"good-any-1~00000000000000abcd.xml": b"TEXT"})) == ["twice"]


def test_output_that_is_not_whole_is_seen() -> None:
    assert kinds(results({"good-any-1.xml": b"TE"})) == ["wrong"]


def test_document_published_and_discarded_is_a_double() -> None:
    innocent = Discard("input", "good-any-1", b"text", report("good-any-1", "crashed", [0, 1]))
    assert kinds(discards(innocent)) == ["twice", "innocent"]


def test_document_discarded_for_kills_alone_is_seen() -> None:
    innocent = Discard("input", "none-one-3", b"text", report("none-one-3", "crashed", [0, 1]))
    assert kinds(discards(innocent)) == ["innocent"]


def test_document_that_was_to_be_discarded_and_is_not_is_lost() -> None:
    assert kinds(WELL._replace(discards=WELL.discards[1:])) == ["lost"]


@pytest.mark.parametrize(
    "discard",
    [
        Discard("one", "poison-two-5", b"text", report("poison-two-5", "crashed", [0, 1])),
        Discard("one", "poison-two-5", b"text one", None),
        Discard("one", "poison-two-5", b"text one", report("poison-two-5", "crashed", [0])),
    ],
    ids=["other bytes", "no report", "too few attempts"],
)
def test_document_discarded_otherwise_than_it_was_to_be_is_seen(discard: Discard) -> None:
    assert kinds(discards(discard)) == ["wrong"]


def test_discarded_twice_is_a_double() -> None:
    once = WELL.discards[0]
    assert kinds(discards(once, once._replace(queue="one"))) == ["twice"]


def test_whatever_is_left_over_is_seen() -> None:
    left = ("one/good-any-1.a-00000000000000abcd.working", "two/discarded/.a.report")
    assert kinds(WELL._replace(left=left)) == ["left", "left"]


def test_look_tells_what_is_left_from_what_nobody_needs(tmp_path: Path) -> None:
    token = "a-00000000000000abcd"
    left = [
        f"input/good-any-1.{token}.working",
        "one/good-any-2.failed2",
        "two/.queuedriver/incoming/x",
        f"two/discarded/.{token}.report",
        f"two/good-any-3.{token}.written",
        f"three/good-any-3.xml.{token}.writing",
    ]
    litter = [f"input/.queuedriver/claims/{token}.json", "one/discarded/.aside-1-2"]
    for path in [*left, *litter, "three/done", "three/good-any-4.xml"]:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("text")
    found = look(tmp_path, tmp_path / "records")
    assert sorted(found.left) == sorted(left)
    assert found.litter["claims"] == 1
    assert found.results == {"good-any-4.xml": b"text"}


def test_broken_rule_of_a_queue_is_seen() -> None:
    assert kinds(WELL._replace(broken=("input: no-report: x",))) == ["broken"]


def test_two_at_once_are_told_from_one_after_the_other() -> None:
    one = ["1.00 begin one a 0", "2.00 end one a 0", "3.00 begin one b 0", "5.00 end one b 0"]
    other = ["2.50 begin one a 1", "3.50 end one a 1", "4.00 begin one b 0", "6.00 end one b 0"]
    assert at_once(processings([one, other])) == 1


def test_process_that_did_not_come_to_the_end_has_no_end() -> None:
    lines = ["1.00 begin one a 0", "2.00 begin one b 0", "3.00 end one b 0", "4.00 begin one c 0"]
    assert processings([lines]) == [
        Processing("one", "a", 1.0, None),
        Processing("one", "b", 2.0, 3.0),
        Processing("one", "c", 4.0, None),
    ]


@pytest.mark.parametrize("count", [50, 600, 20_000])
def test_documents_of_a_seed_are_the_same_each_time(count: int) -> None:
    some = submissions(count, 7)
    assert some == submissions(count, 7) != submissions(count, 8)
    assert len({one.docid for one in some}) == count
    assert sum(one.is_poison for one in some) >= 3


@pytest.mark.parametrize(
    ("arguments", "comm", "is_program", "role"),
    [
        ("python -P -m watchdogd.programs.driver two-1", "two-1", False, "driver"),
        ("python -P -m watchdogd.programs.template one", "one-1", False, "driver"),
        ("python -P -m watchdogd.programs.template one", "load one", False, "template"),
        ("python -P -m watchdogd.programs.template one", "python", False, "template"),
        ("python -m watchdogd.programs.io_helper", "watchdogd-io", False, "helper"),
        ("python -P /lib/watchdogd/programs/warden.py 7 7.1/ /local", "python", False, "warden"),
        ("python -m watchdogd run p.toml --host rose", "python", False, "watchdog"),
        ("python -m queuedriver recover in", "python", False, "operator"),
        ("unshare --pid python -m tests.crash.chaos_host p.toml rose", "unshare", False, "host"),
        ("/bin/sh ./two.sh a b c 0", "two.sh", True, "command"),
        ("python /tmp/chaos_stages.py", "python", True, "server"),
    ],
)
def test_each_process_has_its_role(arguments: str, comm: str, is_program: bool, role: Role) -> None:
    assert role_of(arguments.encode().split(b" "), comm.encode(), is_program) == role
