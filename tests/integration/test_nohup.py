"""The tests themselves, in a run that ignores interrupts and hang-ups, as under nohup."""

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Those that send one of these signals and wait for what it does.
HEARD = (
    "tests/unit/driving/test_limits.py::test_a_signal_is_recorded_and_wakes_who_waits",
    "tests/unit/driving/test_limits.py::test_the_first_wish_names_the_reason_for_leaving",
    "tests/integration/test_driver.py::test_a_driver_that_is_asked_to_leave_finishes_its_document",
    "tests/integration/test_driver.py::test_a_hang_up_is_a_wish_for_a_new_start",
    "tests/integration/test_shell_driver.py::test_interrupted_program_charges_no_document",
)


def test_signals_are_heard_by_tests_of_a_run_that_ignores_them() -> None:
    def ignore() -> None:
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)

    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *HEARD],
        cwd=ROOT,
        env=os.environ,
        preexec_fn=ignore,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout
