"""Two hosts on NFS: every document once, whatever becomes of the network or of the server.

A kernel NFS server and two clients (NFS 4.2), each a kernel of its own; see `tests/testbed/`.
"""

import statistics
import time
from collections.abc import Callable, Iterator

import pytest

from queuedriver.driving.plan import LONGEST_POLL
from tests.testbed import nfs, work
from tests.testbed.lab import PATIENCE, Lab
from tests.testbed.nfs import EXPORT, QUEUES, Nfs, Witness
from tests.testbed.race import Race
from tests.waiting import until

# Seconds that a name is not seen though it is there, at the least; NFS allows itself a minute.
STALE = 2 * LONGEST_POLL
# What the journal has of a document whose driver was cut off, and given up.
FATE = ("released", "published", "revoked")
# What a loaded machine may add to a pause, in seconds.
SLACK = STALE


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nfs]:
    """One server and two clients for all tests; each test has directories of its own."""
    with Lab(tmp_path_factory.mktemp("nfs")) as lab:
        yield Nfs(lab).start()


@pytest.fixture
def net(started: Nfs) -> Nfs:
    started.heal()
    return started


# Races


def test_two_hosts_race_for_a_thousand_documents_and_publish_each_once(net: Nfs) -> None:
    race = Race(net, "race", documents=1000)
    race.run()
    race.all_came_out_once()


def test_replies_that_are_lost_cost_time_and_no_document(net: Nfs) -> None:
    race = Race(net, "loss", documents=800)
    with net.losing_replies(percent=2):
        race.start()
        for share in (0.1, 0.2, 0.2):
            race.wait_for_share(share)
            net.go_deaf(seconds=1.0)
        race.is_on()
        race.finish()
    race.all_came_out_once()


def test_server_that_loses_power_is_waited_for_and_nothing_is_lost(net: Nfs) -> None:
    race = Race(net, "power", documents=1000, durable=True)
    race.start()
    race.wait_for_share(0.2)
    race.cut_power()
    race.restore_power()
    race.finish()
    race.all_came_out_once()


def test_drivers_say_that_they_wait_for_a_server_that_gives_up_on_them(net: Nfs) -> None:
    """On a mount that reports what it cannot do, rather than wait for ever. The server's host is
    back soon, the server is not."""
    soft = "/run/soft"
    net.mount(soft, nfs.SOFT)
    race = Race(net, "soft", documents=500, durable=True)
    race.start(soft)
    race.wait_for_share(0.1)
    race.cut_power()
    net.boot_server()
    race.wait_for_state("waiting-fs", share=0.5)
    race.restore_power()
    race.finish()
    race.all_came_out_once()


def test_commit_counts_though_the_server_lost_power_before_it_could_say_so(net: Nfs) -> None:
    client = net.clients[0]
    net.server.call(work.put, f"{EXPORT}/commit/in", ["d"])
    gate = "/run/commit"
    driver = client.start(
        work.drive, *_queues("commit"), "one", {"drain": True}, held=gate, written=True
    )
    client.call(work.wait_for, f"{gate}.at")
    with net.power_lost_before_it_replies():
        client.call(work.touch, gate)
        until(
            lambda: "written" in net.server.call(work.states, f"{EXPORT}/commit/in").values(),
            "the server has committed it",
        )
    assert driver.result()["word"] == "drained"
    said = client.call(work.command, "history", f"{QUEUES}/commit/in", "d")["said"]
    assert net.server.call(work.check_all_whole, f"{EXPORT}/commit/out") == 1, said
    assert "revoked" not in said


# A host that is cut off


def test_host_that_was_cut_off_is_given_up_and_publishes_nothing_when_it_is_back(net: Nfs) -> None:
    first, second = net.clients
    docids = [f"d{number}" for number in range(4)]
    net.server.call(work.put, f"{EXPORT}/cut/in", docids)
    witness = Witness(net, f"{EXPORT}/cut/out")
    # Two have not written anything yet, two have all but committed.
    gates = [f"/run/go-{number}" for number in range(4)]
    zombies = [
        first.start(work.drive, *_queues("cut"), f"zombie-{number}", {}, gate, number > 1)
        for number, gate in enumerate(gates)
    ]
    for gate in gates:
        first.call(work.wait_for, f"{gate}.at")
    first.unplug()
    try:
        # Only an operator may know that it is gone for certain.
        words = ("recover", f"{QUEUES}/cut/in", "--lease", "0")
        assert second.call(work.command, *words)["exit_code"] == 0
        heir = second.call(work.drive, *_queues("cut"), "heir", {"drain": True})
        assert (heir["word"], heir["documents"]) == ("drained", 4)
        for gate in gates:
            first.call(work.touch, gate)
        time.sleep(0.5)
    finally:
        first.plug()
    net.server.call(work.touch, f"{EXPORT}/cut/in/QUIT")
    for zombie in zombies:
        assert zombie.result(3 * PATIENCE)["word"] == "quit"
    for docid in docids:
        said = second.call(work.command, "history", f"{QUEUES}/cut/in", docid)["said"]
        assert [said.count(word) for word in FATE] == [1] * len(FATE), said
    assert sorted(witness.published()) == [f"{docid}.ready" for docid in docids]
    assert net.server.call(work.check_all_whole, f"{EXPORT}/cut/out") == 4
    assert net.server.call(work.states, f"{EXPORT}/cut/in") == {}


def _queues(name: str) -> tuple[str, str]:
    """As a client sees them."""
    return f"{QUEUES}/{name}/in", f"{QUEUES}/{name}/out"


# Waking up


def test_idle_driver_wakes_within_its_longest_pause_though_a_name_stays_unseen(
    net: Nfs, record_property: Callable[[str, object], None]
) -> None:
    first, second = net.clients
    queues = [f"wake-{number}" for number in range(8)]
    witness = Witness(net, f"{EXPORT}/woken")
    drivers = []
    for queue in queues:
        net.server.call(work.put, f"{EXPORT}/{queue}", [])
        drivers.append(second.start(work.drive, f"{QUEUES}/{queue}", f"{QUEUES}/woken", queue, {}))
    # A name that is asked for and not there is not asked for again for as long as NFS likes.
    net.server.call(work.put, f"{EXPORT}/names", [])
    asking = (f"{QUEUES}/names", "late", STALE + 2 * LONGEST_POLL)
    unseen = second.start(work.seen_after, *asking)
    time.sleep(2 * LONGEST_POLL)
    first.call(work.touch, f"{QUEUES}/names/late")
    submitted = {queue: first.call(work.put_one, f"{QUEUES}/{queue}", queue) for queue in queues}
    wanted = {f"{queue}.ready" for queue in queues}
    until(lambda: set(witness.published()) == wanted, "all are woken", PATIENCE)
    # Which they could not be by asking for names.
    assert unseen.result() is None
    for queue in queues:
        first.call(work.touch, f"{QUEUES}/{queue}/QUIT")
    assert {driver.result()["word"] for driver in drivers} == {"quit"}
    # By the clock that all of them have, and not by when the test came to look.
    seconds = [
        net.server.call(work.published_at, f"{EXPORT}/{queue}", queue) - at
        for queue, at in submitted.items()
    ]
    words = f"median {statistics.median(seconds):.2f} s, worst {max(seconds):.2f} s"
    record_property("wake-up", words)
    assert max(seconds) < LONGEST_POLL + SLACK, words
