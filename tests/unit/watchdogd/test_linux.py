"""What a process asks of the kernel for itself."""

import contextlib
import os
import subprocess
import sys

import pytest

from watchdogd import linux


def run(code: str) -> str:
    """What a process that runs this prints."""
    ran = subprocess.run(
        [sys.executable, "-c", f"import os, signal\nfrom watchdogd import linux\n{code}"],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return ran.stdout.strip()


def test_process_has_the_name_it_chose_as_far_as_it_fits() -> None:
    show = "print(open('/proc/self/comm').read().strip())\n"
    assert run("linux.set_name('parse-2')\n" + show) == "parse-2"
    assert run("linux.set_name('a-name-of-many-bytes')\n" + show) == "a-name-of-many-"


def test_process_whose_parent_has_died_does_not_go_on() -> None:
    # Pid 0 is nobody's parent here.
    words = "from watchdogd import linux\nlinux.die_with_parent(0)"
    ran = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "process 0, which wanted this one, has died" in ran.stderr


CHILD = """
import os, signal, sys
from watchdogd import linux
parent = os.getpid()
if os.fork() == 0:
    linux.die_with_parent(parent)
    print(os.getpid(), flush=True)
    print(sys.stdin.readline(), flush=True)
signal.pause()
"""


def test_child_dies_with_its_parent() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    )
    with parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        assert int(parent.stdout.readline())
        parent.kill()
        parent.wait()
        # Whoever has a deadly signal waiting does not come to read this.
        with contextlib.suppress(BrokenPipeError):
            parent.stdin.write(b"well?\n")
        assert parent.stdout.readline() == b""


def test_orphan_becomes_the_subreapers_child_and_knows_it() -> None:
    found = run(
        """
linux.become_subreaper()
watchdog = os.getpid()
if os.fork() == 0:
    middle = os.getpid()
    if os.fork() == 0:
        linux.await_orphanhood(middle)
        print(os.getppid() == watchdog, flush=True)
    os._exit(0)
os.wait()
os.wait()
"""
    )
    assert found == "True"


def test_who_has_another_parent_already_does_not_wait() -> None:
    linux.await_orphanhood(os.getpid())


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({}, "glibc.malloc.hugetlb=1"),
        ({"GLIBC_TUNABLES": "a.b=2"}, "a.b=2:glibc.malloc.hugetlb=1"),
        ({"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"}, "glibc.malloc.hugetlb=0"),
    ],
)
def test_huge_pages_are_asked_for_unless_somebody_said_otherwise_and_by_one_program_alone(
    said: dict[str, str], told: str
) -> None:
    environ = linux.with_huge_pages({"HOME": "/", **said})
    assert environ == {"HOME": "/", "GLIBC_TUNABLES": told}
    linux.drop_huge_pages(environ)
    assert environ == {"HOME": "/", **said}


def test_refusal_of_the_kernel_is_an_error() -> None:
    with pytest.raises(OSError, match="Invalid argument"):
        linux._prctl(12345, 0)
