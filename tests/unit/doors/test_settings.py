"""What a settings struct makes of what was told."""

import re
import resource
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from queuedriver.doors.fuq import settings as fuq
from queuedriver.doors.pingpong import settings as pingpong
from queuedriver.doors.roundrobin import settings as roundrobin
from queuedriver.doors.scale0 import settings as scale0
from queuedriver.errors import BadArgument, ConfigError


@pytest.mark.parametrize("any_port", ["*", "0"])
def test_address_that_peers_are_told_has_a_port_where_any_would_do(any_port: str) -> None:
    anywhere = (f"tcp://127.0.0.1:{any_port}", "tcp://127.0.0.1:8080")
    broker = scale0.BrokerSettings(input="in", listen=anywhere).placed()
    assert re.fullmatch(r"tcp://127\.0\.0\.1:[1-9][0-9]*", broker.address)
    assert broker.listen[1] == anywhere[1]
    server = roundrobin.WorkerSettings(listen=anywhere[0]).placed()
    assert re.fullmatch(r"tcp://127\.0\.0\.1:[1-9][0-9]*", server.where)
    assert roundrobin.WorkerSettings().placed().where == "tcp://127.0.0.1:6714"


@pytest.mark.parametrize(("nproc", "wanted"), [(1, 256), (1000, 2128)])
def test_worker_of_fuq_has_as_many_descriptors_as_its_tasks_need(nproc: int, wanted: int) -> None:
    """Each task that runs is two; and each inherits the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        with closing(fuq.WorkerSettings(broker="tcp://127.0.0.1:1", nproc=nproc).transport()):
            assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == min(hard, wanted)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_group_may_be_addresses_and_files_of_them_and_names_each_broker_once(
    tmp_path: Path,
) -> None:
    file = tmp_path / "group.json"
    file.write_text('{"brokers": ["tcp://a:8081", "tcp://b:8081"]}')
    told = ("tcp://c:8081", str(file), "tcp://a:8081")
    assert scale0.addresses_of(told) == ("tcp://c:8081", "tcp://a:8081", "tcp://b:8081")


@pytest.mark.parametrize(
    "content",
    [b"", b"tcp://a:8081", b'{"brokers": "tcp://a:8081"}', b"[" * 100_000, b"\xff"],
)
def test_file_that_is_no_group_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "group.json"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match="broker group"):
        scale0.WorkerSettings(group=(str(file),)).check()


def test_intervals_by_which_broker_and_worker_would_give_each_other_up_are_refused() -> None:
    more: dict[str, Any]
    for more in ({"broker_timeout": 2.0}, {"n_timeouts": 4}, {"worker_expire_seconds": 1.0}):
        with pytest.raises(ConfigError, match="WORKER_EXPIRE_SECONDS"):
            pingpong.BrokerSettings(input="in", outputs=("out",), **more).check()
        with pytest.raises(ConfigError, match="WORKER_EXPIRE_SECONDS"):
            pingpong.WorkerSettings(**more).check()
    slow: dict[str, Any] = {"broker_timeout": 10.0, "worker_expire_seconds": 60.0}
    pingpong.BrokerSettings(input="in", outputs=("out",), **slow).check().session("b")
    worker = pingpong.WorkerSettings(**slow).check().session("w")
    worker.start(0.0, 0.0)
    assert worker.next_tick_at() == 10.0


def test_service_names_its_queues() -> None:
    told = scale0.BrokerSettings(service=("ocr=scans:texts", "stamp=letters"))
    assert [tuple(one) for one in told.check().services] == [
        ("ocr", "scans", ("texts",)),
        ("stamp", "letters", ()),
    ]
    with pytest.raises(BadArgument, match="NAME=INPUT:OUTPUT"):
        scale0.BrokerSettings(service=("ocr",)).check()
