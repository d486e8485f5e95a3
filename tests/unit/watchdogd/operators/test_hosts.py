"""Which watchdogs there are, by what each said last."""

from pathlib import Path

from msgspec.structs import replace

from queuedriver.format.records import encode
from tests.cli.pipelines import FAR, report
from watchdogd.operators.hosts import read_hosts
from watchdogd.report import HOSTS


def test_thousands_of_hosts_are_all_seen(tmp_path: Path) -> None:
    """As of nodes that Slurm gives for minutes, each of which is a host of its own."""
    directory = tmp_path / HOSTS
    directory.mkdir(parents=True)
    said = report("rose", identity=FAR, stages=())
    for number in range(1500):
        name = f"4711_{number}"
        (directory / f"{name}.json").write_bytes(encode(replace(said, host=name)))
    found = read_hosts(str(tmp_path))
    assert (len(found.seen), found.unreadable) == (1500, ())
