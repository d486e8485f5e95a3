"""Who is dead: certain on the same host, patient with others, and no two clocks compared."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuedriver.claims.heartbeat import FENCE, Beats
from queuedriver.claims.liveness import (
    CRASHED,
    HIDDEN,
    LEASE,
    Counters,
    Identity,
    Observer,
    Registration,
    Verdict,
    draw_salt,
    host_id,
    identify,
    judge,
    process_ticks,
    read_registration,
    read_registrations,
    whose,
)
from queuedriver.disk.filesystem import Directory
from queuedriver.format import names
from tests.waiting import until

if TYPE_CHECKING:
    from tests.conftest import Bench

ME = Identity("alpha", "machine-a", "boot-1", 4026531836, 100, 5000)
THEM = msgspec.structs.replace(ME, pid=200, ticks=7000)
OTHER_HOST = Identity("beta", "machine-b", "boot-9", 4026531836, 200, 7000)


def registered(identity: Identity = THEM, **more: Any) -> Registration:
    plain = Registration(id="d", salt="5a17", started_at=0.0, identity=identity)
    return msgspec.structs.replace(plain, **more)


# One look


@pytest.mark.parametrize(
    ("registration", "ticks", "unchanged_for", "verdict"),
    [
        # The same host: there or not, whatever its beats.
        (registered(), 7000, 0.0, "alive"),
        (registered(), 7000, 1e9, "alive"),
        (registered(), None, 0.0, "dead"),
        # Another process got its number.
        (registered(), 7001, 0.0, "dead"),
        # It is another user's, and hidden: then only its beats tell.
        (registered(), HIDDEN, LEASE - 1, "alive"),
        (registered(), HIDDEN, LEASE, "lost"),
        # Another host, and what is as good as one: another namespace of process ids.
        (registered(OTHER_HOST), None, 0.0, "alive"),
        (registered(OTHER_HOST), None, LEASE - 1, "alive"),
        (registered(OTHER_HOST), None, LEASE, "lost"),
        (registered(OTHER_HOST, lease=10.0), None, 11.0, "lost"),
        (registered(msgspec.structs.replace(THEM, namespace=1)), None, 0.0, "alive"),
        (registered(msgspec.structs.replace(THEM, namespace=1)), None, LEASE, "lost"),
        # This host, before it went down.
        (registered(msgspec.structs.replace(THEM, boot="boot-0")), 7000, 0.0, "rebooted"),
        # A clone of its image, by another name; or no machine id at all.
        (registered(msgspec.structs.replace(THEM, boot="b", host="beta")), None, 0.0, "alive"),
        (registered(msgspec.structs.replace(THEM, boot="b", machine="m")), None, 0.0, "alive"),
        # It said goodbye.
        (registered(last_word="quit"), None, 0.0, "left"),
        (registered(last_word="quit"), 7000, 0.0, "left"),
        (registered(OTHER_HOST, last_word="drained"), None, 1e9, "left"),
        # By an error of its own: as good as crashed, though its process may live on.
        (registered(last_word=CRASHED), 7000, 0.0, "dead"),
        (registered(OTHER_HOST, last_word=CRASHED), None, 0.0, "dead"),
    ],
)
def test_each_case_is_judged_by_its_facts(
    registration: Registration, ticks: int | None, unchanged_for: float, verdict: Verdict
) -> None:
    assert judge(registration, ME, ticks, unchanged_for) == verdict


def test_without_machine_ids_no_host_is_taken_for_this_one_rebooted() -> None:
    me = msgspec.structs.replace(ME, machine="")
    them = msgspec.structs.replace(THEM, machine="", boot="boot-0")
    assert judge(registered(them), me, None, 0.0) == "alive"


# Over time


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_another_host_is_lost_when_its_beat_stands_still_by_the_observers_own_clock() -> None:
    clock = Clock()
    observer = Observer(clock)
    them = registered(OTHER_HOST, beat=1, beat_at=1e12)
    assert observer.judge(them) == "alive"
    clock.now = LEASE - 1
    assert observer.judge(them) == "alive"
    # A beat starts it anew, whatever the other clock says.
    them.beat, them.beat_at = 2, 0.0
    assert observer.judge(them) == "alive"
    clock.now += LEASE - 1
    assert observer.judge(them) == "alive"
    clock.now += 1
    assert observer.judge(them) == "lost"
    # It was there after all.
    them.beat = 3
    assert observer.judge(them) == "alive"


def test_a_new_life_of_an_id_is_not_judged_by_the_silence_of_the_last() -> None:
    clock = Clock()
    observer = Observer(clock)
    assert observer.judge(registered(OTHER_HOST, beat=1)) == "alive"
    clock.now = LEASE
    assert observer.judge(registered(OTHER_HOST, beat=1)) == "lost"
    assert observer.judge(registered(OTHER_HOST, beat=1, salt="beef")) == "alive"


def test_what_was_forgotten_is_watched_anew() -> None:
    clock = Clock()
    observer = Observer(clock)
    assert observer.unchanged_for("a.working", 1) == 0.0
    clock.now = 5.0
    assert observer.unchanged_for("a.working", 1) == 5.0
    observer.forget("a.working")
    observer.forget("a.working")
    assert observer.unchanged_for("a.working", 1) == 0.0


# Real processes


def test_this_process_is_alive_and_the_next_with_its_number_is_not() -> None:
    observer = Observer()
    me = identify(os.getpid())
    assert observer.me == me
    assert observer.judge(registered(me)) == "alive"
    assert observer.judge(registered(msgspec.structs.replace(me, ticks=me.ticks + 1))) == "dead"


def test_a_killed_process_is_dead_at_once_and_before_anybody_collects_it() -> None:
    observer = Observer()
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        them = registered(identify(child.pid))
        assert observer.judge(them) == "alive"
        os.kill(child.pid, signal.SIGSTOP)
        # Stopped is not dead.
        assert observer.judge(them) == "alive"
        os.kill(child.pid, signal.SIGKILL)
        # Its end, and not its collection, is what this waits for.
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert Path(f"/proc/{child.pid}").exists()
        assert process_ticks(child.pid) is None
        assert observer.judge(them) == "dead"
    finally:
        child.kill()
        child.wait()
    assert observer.judge(them) == "dead"


def test_a_process_name_may_hold_anything() -> None:
    # The name is in front of the number that is looked for.
    script = "import ctypes, sys; ctypes.CDLL(None).prctl(15, b') Z 1 (', 0, 0, 0); input()"
    child = subprocess.Popen(
        [sys.executable, "-c", f"{script}"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    try:
        comm = Path(f"/proc/{child.pid}/comm")
        before = process_ticks(child.pid)
        while comm.read_text() != ") Z 1 (\n":
            assert child.poll() is None
            time.sleep(0.001)
        assert process_ticks(child.pid) == before
        assert before is not None
    finally:
        child.communicate(b"\n")


@pytest.mark.parametrize("pid", [0, -1, 2**40])
def test_a_number_that_no_process_has_is_nobodys(pid: int) -> None:
    assert process_ticks(pid) is None


def test_the_ticks_of_a_process_do_not_change() -> None:
    assert process_ticks(os.getpid()) == process_ticks(os.getpid())
    assert (process_ticks(os.getpid()) or 0) > (process_ticks(1) or 0)


# Names


@given(st.text(max_size=80).filter(bool))
def test_any_host_name_gives_a_driver_id_with_room_for_a_slot(host: str) -> None:
    assert names.check_driver_id(f"{host_id(host)}-9999999") != ""


def test_salts_are_four_digits_and_differ() -> None:
    salts = {draw_salt() for _ in range(50)}
    assert len(salts) > 40
    for salt in salts:
        assert names.parse_token(names.Mint("d", salt).next(1)).salt == salt


# Whose a claim is


def test_a_claim_is_its_drivers_or_of_a_life_before_or_nobodys() -> None:
    them = registered(past=("0001", "0002"))
    known: dict[str, tuple[Registration, Verdict]] = {"d": (them, "alive")}

    def verdict(driver: str, salt: str) -> tuple[Registration | None, Verdict | None]:
        return whose(names.Token(driver, 1, salt), known)

    assert verdict("d", "5a17") == (them, "alive")
    assert verdict("d", "0002") == (them, "lost")
    # A later life than the one we read of.
    assert verdict("d", "ffff") == (None, None)
    assert verdict("e", "5a17") == (None, None)
    # A bare number is nobody's, though a driver has it for its id.
    assert whose(names.Token("d", 0, ""), known) == (None, None)


# Registrations


def test_registrations_that_cannot_be_read_are_left_out(bench: "Bench") -> None:
    drivers = bench.directory("drivers")
    good = registered(identify(os.getpid()))
    drivers.write_new("d.json", msgspec.json.encode(good))
    for name, data in [
        ("torn.json", msgspec.json.encode(good)[:40]),
        ("empty.json", b""),
        ("other.json", msgspec.json.encode(good)),
        (".aside-1", msgspec.json.encode(good)),
        ("notes.txt", b"hello"),
    ]:
        bench.put(f"drivers/{name}", data)
    (bench.root / "drivers/link.json").symlink_to("nowhere")
    assert read_registrations(drivers) == [good]
    assert read_registration(drivers, "d") == good
    assert read_registration(drivers, "nobody") is None


def test_a_registration_of_a_later_version_is_understood(bench: "Bench") -> None:
    drivers = bench.directory("drivers")
    plain = msgspec.to_builtins(registered())
    drivers.write_new("d.json", msgspec.json.encode(plain | {"mood": "good"}))
    assert read_registration(drivers, "d") == registered()


# Beats


class Report:
    """What a driver would say of itself: always consistent, always changing."""

    def __init__(self) -> None:
        self.turn = 0

    def __call__(self) -> tuple[str, str, Counters]:
        self.turn += 1
        return f"state-{self.turn}", f"why-{self.turn}", Counters(documents=self.turn)


def beats_in(*directories: Directory, interval: float = 600.0, **more: Any) -> Beats:
    registration = registered(identify(os.getpid()), **more)
    return Beats(registration, list(directories), Report(), interval)


def test_a_beat_is_never_read_in_part_or_from_the_middle_of_a_turn(bench: "Bench") -> None:
    one, two = bench.directory("one"), bench.directory("two")
    beats = beats_in(one, two, interval=0.0005)
    beats.start()
    seen: set[int] = set()
    try:
        while len(seen) < 100:
            for drivers in (one, two):
                read = read_registration(drivers, "d")
                assert read is not None
                seen.add(read.beat)
                turn = read.counters.documents
                assert (read.state, read.why) == (f"state-{turn}", f"why-{turn}")
    finally:
        beats.stop()
    assert bench.ls("one") == bench.ls("two") == ["d.json"]


class Present:
    """What a driver has done so far."""

    def __init__(self) -> None:
        self.state, self.counters = "starting", Counters()

    def __call__(self) -> tuple[str, str, Counters]:
        return self.state, "", self.counters


def test_news_is_told_at_once_and_no_news_only_at_the_next_beat(bench: "Bench") -> None:
    drivers, present = bench.directory("drivers"), Present()
    registration = registered(identify(os.getpid()))
    beats = Beats(registration, [drivers], present, interval=600.0, news=0.01)

    def told() -> Registration:
        read = read_registration(drivers, "d")
        assert read is not None
        return read

    beats.start()
    try:
        present.state, present.counters = "busy", Counters(documents=3)
        until(lambda: (told().state, told().counters.documents) == ("busy", 3), "it is told")
        first = told().beat
        # Time passes, and is no news.
        for milliseconds in range(50):
            present.counters = Counters(documents=3, wait=milliseconds)
            time.sleep(0.001)
        assert told().beat == first
        present.counters = Counters(documents=3, discarded=1)
        until(lambda: told().counters.discarded == 1, "it is told")
    finally:
        beats.stop()


def test_the_first_beat_is_there_before_anything_is_claimed(bench: "Bench") -> None:
    drivers = bench.directory("drivers")
    beats = beats_in(drivers)
    beats.start()
    try:
        assert read_registration(drivers, "d") is not None
    finally:
        beats.stop()


def test_the_last_word_is_said_once_the_thread_is_still(bench: "Bench") -> None:
    drivers = bench.directory("drivers")
    beats = beats_in(drivers, interval=0.0005)
    beats.start()
    beats.leave("quit", "it was asked to")
    read = read_registration(drivers, "d")
    assert read is not None
    assert (read.last_word, read.last_why) == ("quit", "it was asked to")
    assert Observer().judge(read) == "left"
    assert "beat" not in {thread.name for thread in threading.enumerate()}
    beats.stop()


def test_a_beat_that_cannot_be_written_is_tried_again(bench: "Bench") -> None:
    drivers = bench.directory("drivers")
    beats = beats_in(drivers, interval=0.0005)
    beats.start()
    try:
        os.rename(bench.root / "drivers", bench.root / "away")
        (bench.root / "away/d.json").unlink()
        os.rmdir(bench.root / "away")
        bench.directory("drivers")
        drivers.reopen()
        while read_registration(drivers, "d") is None:
            time.sleep(0.001)
    finally:
        beats.stop()


def test_who_has_shown_no_life_for_long_does_before_it_commits(bench: "Bench") -> None:
    drivers = bench.directory("drivers")
    beats = beats_in(drivers)
    beats.write()
    beats.fresh()
    first = read_registration(drivers, "d")
    beats.last_at -= LEASE * FENCE + 1
    beats.fresh()
    second = read_registration(drivers, "d")
    assert first is not None
    assert second is not None
    assert (first.beat, second.beat) == (1, 2)
    beats.last_at -= LEASE * FENCE + 1
    (bench.root / "drivers/d.json").unlink()
    os.rmdir(bench.root / "drivers")
    with pytest.raises(FileNotFoundError):
        beats.fresh()


def test_what_is_not_utf8_does_not_stop_the_beats(bench: "Bench") -> None:
    drivers = bench.directory("drivers")
    registration = registered(identify(os.getpid()), processor="convert caf\udce9")
    beats = Beats(registration, [drivers], lambda: ("ready", "caf\udce9", Counters()), 600.0)
    beats.start()
    beats.leave("failed", "no file caf\udce9")
    read = read_registration(drivers, "d")
    assert read is not None
    assert (read.processor, read.why) == ("convert caf\\udce9", "caf\\udce9")
    assert read.last_why == "no file caf\\udce9"


def test_the_rate_is_that_of_the_last_minute(bench: "Bench") -> None:
    beats = beats_in(bench.directory("drivers"))
    beats.write()
    assert beats.registration.rate == 0.0
    beats.write()
    assert beats.registration.rate > 0.0
