"""Who is dead: certain on the same host, patient with others, and no two clocks compared."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuedriver.claims.liveness import (
    CRASHED,
    EXPIRY,
    FENCE,
    NETWORK_BEAT,
    REBOOTED_AFTER,
    Heartbeat,
    Observer,
    Owner,
    Roster,
    Verdict,
    draw_salt,
    host_id,
    identify,
    judge,
    owner_of,
    read_registration,
    read_registrations,
)
from queuedriver.disk.filesystem import Directory
from queuedriver.disk.processes import HIDDEN, process_ticks
from queuedriver.format import names
from queuedriver.format.records import LEASE, Counters, Identity, Registration
from tests.waiting import until

if TYPE_CHECKING:
    from tests.conftest import Bench

ME = Identity("alpha", "machine-a", "boot-1", 4026531836, 100, 5000)
THEM = msgspec.structs.replace(ME, pid=200, ticks=7000)
BEFORE = msgspec.structs.replace(THEM, boot="boot-0")
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
        # This host, before it went down; or a clone of it, whose beats go on.
        (registered(BEFORE), 7000, REBOOTED_AFTER - 1, "alive"),
        (registered(BEFORE), 7000, REBOOTED_AFTER, "rebooted"),
        # An operator says that all are gone.
        (registered(BEFORE, lease=0.0), 7000, 0.0, "rebooted"),
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
    known = {"d": Owner(id="d", registration=them, verdict="alive", here=True)}

    def owner(driver: str, salt: str) -> Owner:
        return owner_of(names.Token(driver, 1, salt), known)

    assert owner("d", "5a17") == known["d"]
    before = owner("d", "0002")
    assert (before.registration, before.verdict, before.alive) == (them, "lost", False)
    # A later life than the one we read of.
    assert owner("d", "ffff") == Owner(id="d")
    assert owner("e", "5a17") == Owner(id="e")
    # A bare number is nobody's, though a driver has it for its id.
    assert owner_of(names.Token("d", 0, ""), known) == Owner(id="d")
    assert Owner(id="d").verdict == "unknown"


# The drivers of a queue


class Counting(Directory):
    """Counts the files that are read from it."""

    reads: ClassVar[int] = 0

    def read(self, name: str, limit: int = 16 << 20) -> bytes:
        Counting.reads += 1
        return super().read(name, limit)


class Site:
    """Drivers that registered, and who looks at them by a clock of its own."""

    def __init__(self, drivers: Directory) -> None:
        self.drivers = drivers
        self.clock = Clock()
        self.observer = Observer(self.clock)
        self.roster = Roster(drivers, self.observer)
        Counting.reads = 0

    def register(self, driver: str = "d", identity: Identity = OTHER_HOST, **more: Any) -> None:
        said = {"beat_at": time.time(), **more}
        one = registered(identity, **said)
        one.id = driver
        self.drivers.write_aside(f"{driver}.json", msgspec.json.encode(one))

    def verdict(self, driver: str = "d") -> str:
        self.roster.refresh()
        return self.roster.owners[driver].verdict


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    drivers = Counting.open(tmp_path)
    yield Site(drivers)
    drivers.close()


def clone_of(me: Identity) -> Identity:
    """A process of another host, made from the same image."""
    return msgspec.structs.replace(me, boot="another", pid=1, ticks=1)


def test_clone_of_this_host_is_not_taken_for_it_rebooted_while_its_beats_go_on(site: Site) -> None:
    for beat in range(20):
        site.register(identity=clone_of(site.observer.me), beat=beat, network=True)
        assert site.verdict() == "alive"
        site.clock.now += NETWORK_BEAT
        assert site.verdict() == "alive"


def test_host_that_was_rebooted_is_known_by_a_beat_that_stands_still(site: Site) -> None:
    site.register(identity=clone_of(site.observer.me), beat=1, network=True)
    assert site.verdict() == "alive"
    site.clock.now = 2 * NETWORK_BEAT - 1
    assert site.verdict() == "alive"
    site.clock.now += 1
    assert site.verdict() == "rebooted"


def test_where_no_other_host_can_be_a_reboot_is_known_at_once() -> None:
    assert judge(registered(BEFORE), ME, 7000, 0.0, shared=False) == "rebooted"


def test_drivers_together_read_no_more_registrations_however_many_they_are(site: Site) -> None:
    def reads_in_a_minute(drivers: int) -> float:
        """Of all of them, each of which asks every other second."""
        for number in range(drivers):
            site.register(f"d-{number}")
        site.roster = Roster(site.drivers, site.observer)
        Counting.reads = 0
        until = site.clock.now + 60
        while site.clock.now < until:
            site.clock.now += 2.0
            site.roster.refresh()
        return drivers * Counting.reads

    few = reads_in_a_minute(8)
    many = reads_in_a_minute(80)
    # Not a hundred times as many: each driver reads about as many a second.
    assert many <= 15 * few
    assert len(site.roster.alive) == 80


# A crowd of drivers


def crowd_of(site: Site, hosts: int, gone: int = 0) -> list[str]:
    """Eight drivers on each of so many hosts; the first so many drivers have crashed."""
    ids = [f"rose{number % hosts:03}-{number // hosts}" for number in range(8 * hosts)]
    for number, driver in enumerate(ids):
        site.register(driver, last_word=CRASHED if number < gone else "")
    return ids


def known_to(site: Site, driver: str) -> set[str]:
    """Whom this driver reads."""
    roster = Roster(site.drivers, site.observer, driver)
    roster.refresh()
    return {*roster.owners} - {driver}


@pytest.mark.parametrize("hosts", [10, 100])
def test_driver_of_a_crowd_reads_a_few_of_it_however_many_they_are(site: Site, hosts: int) -> None:
    ids = crowd_of(site, hosts)
    Counting.reads = 0
    roster = Roster(site.drivers, site.observer, ids[11])
    roster.refresh()
    assert Counting.reads <= 17
    # Whom others look after live, as far as it knows: it takes its share of what waits.
    assert {one.id for one in roster.alive} | roster.others == {*ids}
    for _ in range(20):
        site.clock.now += 2.0
        roster.refresh()
    assert Counting.reads <= 17
    site.clock.now += 30.0
    roster.refresh()
    assert Counting.reads <= 34


def test_each_driver_of_a_crowd_is_looked_after_by_some_of_its_host_and_some_elsewhere(
    site: Site,
) -> None:
    ids = crowd_of(site, 20)
    by = {driver: known_to(site, driver) for driver in ids}
    for driver in ids:
        watching = {one for one, known in by.items() if driver in known}
        here = {one for one in watching if one.partition("-")[0] == driver.partition("-")[0]}
        assert len(here) == 7
        assert len(watching) >= 8


def test_dead_of_a_crowd_are_looked_after_by_the_living_however_few_these_are(site: Site) -> None:
    ids = crowd_of(site, 20, gone=120)
    living = ids[120:]
    assert set().union(*(known_to(site, driver) for driver in living)) >= {*ids[:120]}


def test_driver_of_a_crowd_sees_at_once_who_has_ended_on_its_host(site: Site) -> None:
    crowd_of(site, 20)
    roster = Roster(site.drivers, site.observer, "rose003-1")
    roster.refresh()
    with subprocess.Popen(["sleep", "600"]) as process:
        site.register("rose003-4", identity=identify(process.pid))
        roster.refresh()
        seen = [roster.named("rose003-4"), roster.owners["rose003-4"]]
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    # Nobody has read any registration since.
    roster.refresh()
    seen.append(roster.owners["rose003-4"])
    assert [one.verdict for one in seen if one] == ["alive", "alive", "dead"]


def test_few_drivers_are_read_whenever_somebody_asks(site: Site) -> None:
    me = identify(os.getpid())
    site.register(identity=me)
    assert site.verdict() == "alive"
    site.register(identity=msgspec.structs.replace(me, ticks=0))
    assert site.verdict() == "dead"


def test_nobody_is_given_up_by_an_old_look(site: Site) -> None:
    for number in range(40):
        site.register(f"d-{number}", beat=1)
    site.roster.refresh()
    site.clock.now = LEASE
    for number in range(40):
        site.register(f"d-{number}", beat=1 if number == 7 else 2)
    site.roster.refresh()
    token = names.parse_token(names.Mint("d-7", "5a17").next(1))
    assert site.roster.owner(token).verdict == "lost"
    # It beats again, and nobody has read all of them since.
    site.register("d-7", beat=2)
    reads = Counting.reads
    site.roster.refresh()
    assert Counting.reads == reads
    assert site.roster.owner(token).verdict == "alive"
    assert Counting.reads == reads + 1
    # Nor is one unknown that has come since.
    site.register("new", identity=identify(os.getpid()))
    new = names.parse_token(names.Mint("new", "5a17").next(1))
    assert site.roster.owner(new).verdict == "alive"
    assert Counting.reads == reads + 2


def test_driver_of_another_host_that_was_silent_for_days_need_not_be_watched_for_its_lease(
    site: Site,
) -> None:
    site.register("old", beat_at=time.time() - 2 * EXPIRY)
    site.register("wrong-clock", beat_at=time.time() - 2 * EXPIRY)
    old = site.drivers.status("old.json").st_mtime_ns / 1e9 - 2 * EXPIRY
    os.utime("old.json", (old, old), dir_fd=site.drivers.fd)
    assert (site.verdict("old"), site.verdict("wrong-clock")) == ("lost", "alive")
    # By the clocks it is silent, and no more can be said.
    assert site.roster.owners["wrong-clock"].silent


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
    assert list(read_registrations(drivers)) == [good]
    assert read_registration(drivers, "d") == good
    assert read_registration(drivers, "nobody") is None


def test_a_registration_of_a_later_version_is_understood(bench: "Bench") -> None:
    drivers = bench.directory("drivers")
    plain = msgspec.to_builtins(registered())
    drivers.write_new("d.json", msgspec.json.encode(plain | {"mood": "good"}))
    assert read_registration(drivers, "d") == registered()


# Heartbeat


class Report:
    """What a driver would say of itself: always consistent, always changing."""

    def __init__(self) -> None:
        self.turn = 0

    def __call__(self) -> tuple[str, str, Counters]:
        self.turn += 1
        return f"state-{self.turn}", f"why-{self.turn}", Counters(documents=self.turn)


def beats_in(*directories: Directory, interval: float = 600.0, **more: Any) -> Heartbeat:
    registration = registered(identify(os.getpid()), **more)
    beats = Heartbeat(registration, list(directories), Report())
    beats.interval = interval
    beats.news = min(beats.news, interval)
    return beats


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
    beats = Heartbeat(registration, [drivers], present)
    beats.interval, beats.news = 600.0, 0.01

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
    before = set(threading.enumerate())
    beats.start()
    beats.leave("quit", "it was asked to")
    read = read_registration(drivers, "d")
    assert read is not None
    assert (read.last_word, read.last_why) == ("quit", "it was asked to")
    assert Observer().judge(read) == "left"
    assert set(threading.enumerate()) <= before
    beats.stop()


def test_a_beat_that_cannot_be_written_is_tried_again(bench: "Bench") -> None:
    drivers = bench.directory("drivers")
    beats = beats_in(drivers, interval=0.0005)
    beats.start()
    try:
        os.rename(bench.root / "drivers", bench.root / "away")
        # A beat may be written there at any moment.
        while (bench.root / "away").exists():
            shutil.rmtree(bench.root / "away", ignore_errors=True)
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
    beats = Heartbeat(registration, [drivers], lambda: ("ready", "caf\udce9", Counters()))
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
