"""A Slurm cluster of one test: a controller and some nodes, each a small computer of its own.

Real programs of Slurm on a network that leads nowhere else, so that any number of clusters may be
there at once, with the same ports; the directory of the test is what the nodes share.
"""

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import pytest

from tests.testbed.slurm.machine import COMMANDS, Daemon, Machine, NoMachine
from tests.waiting import until

# 0 in the environment: no cluster, though it could be had.
SWITCH = "QUEUEDRIVER_TEST_SLURM"
PACKAGES = "munge slurmctld slurmd slurm-client slurm-wlm-basic-plugins"
INSTALL = f"apt-get install --no-install-recommends {PACKAGES}"
# Seconds: far more than anything here takes, on a machine that does other things too.
PATIENCE = 90.0
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "sinfo")
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_HEAD = "head"
# Seconds without an answer until the controller takes a node for dead. Short, as scenes wait for
# it; not so short that a busy machine is enough.
_NODE_SILENT = 5
_CONF = """\
ClusterName=test
SlurmctldHost={head}({network}.254)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# A job that was requeued waits for the end of its credential, too.
AuthInfo=socket={directory}/munge.sock,cred_expire=5
StateSaveLocation={directory}/state
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdSpoolDir={directory}/spool.%n
SlurmdPidFile={directory}/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1,default_queue_depth=1000
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
ReturnToService=2
SlurmdParameters=config_overrides
SlurmctldTimeout=60
SlurmdTimeout={silent}
# Between the word that its time is over and the end of a job.
KillWait=5
OverTimeLimit=0
MinJobAge=300
MessageTimeout=10
{nodes}
# The node with the least to do is taken first, so that two elements are on two nodes.
PartitionName=main Nodes={prefix}[1-{count}] Default=YES MaxTime=INFINITE State=UP LLN=YES
"""


def missing() -> str:
    """Return what keeps a cluster from running here; empty if nothing does."""
    if os.environ.get(SWITCH) == "0":
        return f"{SWITCH}=0 says not to start a Slurm"
    if os.geteuid():
        return "a Slurm of the test's own needs root"
    without = [one for one in (*_PROGRAMS, *COMMANDS) if shutil.which(one, path=_PATH) is None]
    if without:
        return f"no {', '.join(without)} here; {INSTALL}"
    return ""


class Cluster:
    """One Slurm. Skips the test where it cannot be had."""

    prefix = "n"
    _network = "10.79.0"

    def __init__(
        self, directory: Path, nodes: int = 2, processors: int = 4, memory: int = 4000
    ) -> None:
        if reason := missing():
            pytest.skip(reason)
        self.directory = directory.resolve()
        self._count, self._processors, self._memory = nodes, processors, memory
        self._machines: dict[str, Machine] = {}
        self._controller: Daemon | None = None
        self.directory.mkdir(mode=0o755, exist_ok=True)

    # Beginning and end

    def __enter__(self) -> Self:
        try:
            self._start()
        except NoMachine as error:
            self.close()
            pytest.skip(f"no namespaces can be made here, so no nodes: {error}")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End everything at once. Nothing of it asks for an orderly end."""
        for machine in self._machines.values():
            machine.end()
        self._machines.clear()

    def _start(self) -> None:
        self._write_configuration()
        head = self._machines[_HEAD] = Machine(_HEAD)
        head.ip("link", "add", "wire", "type", "bridge")
        head.ip("address", "add", f"{self._network}.254/24", "dev", "wire")
        head.ip("link", "set", "wire", "up")
        self._start_munge()
        self.start_controller()
        for node in self.nodes:
            self.start_node(node)
        self.wait_until_idle()

    def _write_configuration(self) -> None:
        shared = f"CPUs={self._processors} RealMemory={self._memory} State=UNKNOWN"
        nodes = "\n".join(
            f"NodeName={node} NodeAddr={self._network}.{number} {shared}"
            for number, node in enumerate(self.nodes, 1)
        )
        self.configuration.write_text(
            _CONF.format(
                head=_HEAD,
                network=self._network,
                directory=self.directory,
                silent=_NODE_SILENT,
                nodes=nodes,
                prefix=self.prefix,
                count=self._count,
            )
        )
        (self.directory / "state").mkdir()

    def _start_munge(self) -> None:
        key = self.directory / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(1024))
        socket = self.directory / "munge.sock"
        words = [f"--key-file={key}", f"--socket={socket}", f"--seed-file={self.directory}/seed"]
        words += [f"--pid-file={self.directory}/munged.pid", f"--log-file={self._log('munged')}"]
        # It refuses what belongs to root, and a directory that others may enter, without `--force`.
        self._daemon(_HEAD, "munged", "--foreground", "--force", *words)
        until(socket.exists, "munged listens", PATIENCE)

    def _daemon(self, machine: str, program: str, *words: str) -> Daemon:
        log = self._log(f"{program}.{machine}")
        return self._machines[machine].start(program, *words, log=log)

    def _log(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    # Looks

    @property
    def configuration(self) -> Path:
        return self.directory / "slurm.conf"

    @property
    def nodes(self) -> list[str]:
        return [f"{self.prefix}{number}" for number in range(1, self._count + 1)]

    @property
    def environ(self) -> dict[str, str]:
        """What the programs of Slurm must be told, of this cluster alone."""
        ours = {name: said for name, said in os.environ.items() if not name.startswith("SLURM")}
        return {**ours, "SLURM_CONF": str(self.configuration)}

    def command(
        self, *words: str, environ: Mapping[str, str] | None = None, **more: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a command where users log in; how it ended."""
        environ = {**self.environ, **(environ or {})}
        return self._machines[_HEAD].run(*words, env=environ, timeout=PATIENCE, **more)

    def slurm(self, *words: str, **more: Any) -> str:
        """Let a program of Slurm answer."""
        done = self.command(*words, **more)
        if done.returncode:
            raise AssertionError(f"{' '.join(words)}: {done.stderr}{self.trouble()}")
        return done.stdout

    def trouble(self) -> str:
        """Return the last words of the daemons."""
        logs = sorted(self.directory.glob("*.log"))
        ends = (f"\n{one.name}:\n{one.read_text(errors='replace')[-1500:]}" for one in logs)
        return "".join(ends)

    def submit(self, script: Path, *options: str, **more: Any) -> int:
        """Return the number of the job that `sbatch` made of a script."""
        return int(self.slurm("sbatch", "--parsable", *options, str(script), **more).split(";")[0])

    def jobs(self) -> list[dict[str, Any]]:
        """Return what `squeue` has, one for each element of an array that has begun."""
        found = json.loads(self.slurm("squeue", "--json"))["jobs"]
        assert isinstance(found, list)
        return found

    def states(self, *jobs: int) -> list[str]:
        """Return the states of the elements of these jobs, or of all; not of those that ended long
        ago."""
        which = [f"--jobs={','.join(map(str, jobs))}"] if jobs else []
        words = ("squeue", "--noheader", "--array", "--states=all", "--format=%T", *which)
        return self.slurm(*words).split()

    def node_states(self) -> dict[str, str]:
        lines = self.slurm("sinfo", "--noheader", "-N", "--format=%N %T").splitlines()
        return dict(line.split() for line in lines)

    def processes(self, node: str) -> dict[int, str]:
        """Return what jobs run on a node, Slurm's own programs left out."""
        found = self._machines[node].processes()
        own = ("slurmd", "slurmstepd")
        return {pid: words for pid, words in found.items() if not words.startswith(own)}

    def wait_until_idle(self) -> None:
        """Wait until every node is there, and has nothing to do."""
        until(
            lambda: set(self.node_states().values()) == {"idle"},
            f"all nodes are idle{self.trouble()}",
            PATIENCE,
        )

    # Troubles

    def start_controller(self) -> None:
        """Start the controller, and wait until it answers: no program waits for it for long."""
        words = ("-D", "-f", str(self.configuration))
        self._controller = self._daemon(_HEAD, "slurmctld", *words)
        until(
            lambda: self.command("scontrol", "ping").returncode == 0,
            "the controller answers",
            PATIENCE,
        )

    def stop_controller(self) -> None:
        """Take the controller away, as its host's maintenance does; jobs go on. One that is killed
        right after a job's start takes the job for waiting when it is back, and drains the node."""
        assert self._controller is not None
        self._controller.stop()

    def start_node(self, node: str) -> None:
        """Switch a node on."""
        number = self.nodes.index(node) + 1
        machine = self._machines[node] = Machine(node)
        head = self._machines[_HEAD]
        head.ip(*f"link add {node} type veth peer name wire netns {machine.pid}".split())
        self.join(node)
        machine.ip("address", "add", f"{self._network}.{number}/24", "dev", "wire")
        machine.ip("link", "set", "wire", "up")
        self._daemon(node, "slurmd", "-D", "-N", node, "-f", str(self.configuration))

    def kill_node(self, node: str) -> None:
        """Cut a node's power: Slurm's daemon, the steps and the jobs' processes are gone."""
        self._machines.pop(node).end()

    def declare_down(self, node: str) -> None:
        """Say that a node is down, as an operator may; Slurm finds out by itself within half a
        minute."""
        self.slurm("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=lost")

    def cut(self, node: str) -> None:
        """Pull a node's network plug; what runs there goes on, and has the shared files still."""
        self._machines[_HEAD].ip("link", "set", node, "nomaster")

    def join(self, node: str) -> None:
        """Put the plug in again."""
        self._machines[_HEAD].ip("link", "set", node, "master", "wire", "up")

    @contextlib.contextmanager
    def controller_down(self) -> Iterator[None]:
        """For as long as the block takes."""
        self.stop_controller()
        try:
            yield
        finally:
            self.start_controller()
