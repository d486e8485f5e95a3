"""Workers that a partition cuts off while they have documents, and that come back.

`python -m tests.network.partitions PROTOCOL --cuts 20` cuts and heals more.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from queuedriver.format.records import Event
from tests.network.doors import WITH_ZEROMQ, Doors
from tests.network.hosts import Hosts
from tests.network.partitions import make_all_keys
from tests.waiting import until


class Cut:
    """A broker on the first host, a worker on the second that is cut off, one on the third."""

    def __init__(self, doors: Doors, hosts: Hosts, keys: Path) -> None:
        self.doors = doors
        self._hosts = hosts
        self._keys = keys
        doors.bring("held")
        self._broker = doors.broker(host=hosts.name(1), curve=str(keys / "broker"), retries=5)
        curve = str(keys / "worker")
        self._far = doors.worker_that_holds(host=hosts.name(2), curve=curve)
        until(lambda: self._far.pid in doors.who_holds("held"), f"{doors.protocol}: it is held")
        self._near = doors.worker(host=hosts.name(3), curve=curve)
        doors.bring_many(20)
        doors.wait_for_outputs(10)

    def goes_on_without_it(self) -> None:
        """The document of the worker that was cut off is done by another."""
        doors = self.doors
        doors.bring_many(20)
        doors.wait_for_outputs(41)

        def failed() -> list[Event]:
            return [one for one in doors.events("held") if one.event == "failed"]

        # The journal is written a moment later.
        (lost,) = until(failed)
        assert "its worker was lost (unroutable)" in (lost.message or "")
        assert self._far.alive

    def comes_back(self) -> None:
        """Its result is dropped, and it is dealt to again."""
        doors = self.doors
        self._near.kill()
        doors.open_gate()
        doors.bring_many(20)
        doors.wait_until_empty()
        self._broker.signal()
        assert self._broker.ended() == 0
        assert doors.account() == []
        assert doors.discarded() == []
        assert doors.who_holds("d000050") == {self._far.pid}


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    with Hosts() as hosts:
        yield hosts


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return make_all_keys(tmp_path / "keys")


def test_documents_of_a_worker_that_is_cut_off_are_dealt_again_and_none_comes_out_twice(
    hosts: Hosts, keys: Path, tmp_path: Path
) -> None:
    """All protocols at once: most of it is waiting for ZeroMQ to miss heartbeats."""
    with contextlib.ExitStack() as at_end:
        cuts = []
        for protocol in WITH_ZEROMQ:
            place = tmp_path / protocol
            place.mkdir()
            doors = at_end.enter_context(Doors(place, protocol, hosts.endpoint(1)))
            cuts.append(Cut(doors, hosts, keys))
        hosts.cut(2)
        for cut in cuts:
            cut.goes_on_without_it()
        hosts.heal(2)
        for cut in cuts:
            cut.comes_back()
