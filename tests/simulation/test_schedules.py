"""Whatever happens at whatever step, each document comes out once.

`QUEUEDRIVER_TEST_SCHEDULES=2000000` tries more of them; `python -m tests.simulation` as many as one
has time for.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from queuedriver.driving.loop import Loop
from tests.simulation.campaign import campaign
from tests.simulation.mutants import MUTANTS
from tests.simulation.scene import SCENES
from tests.simulation.schedules import broken, draw, outline, schedule, shrunk, story
from tests.simulation.seams import seam

ROOT = Path(__file__).parents[2]
SCHEDULES = int(os.environ.get("QUEUEDRIVER_TEST_SCHEDULES", "20000"))
# Some hundredths of a second.
FEW = 20
# So none takes longer than a test may, on a machine that is busy with others.
PARTS = 2


@pytest.mark.quick
@pytest.mark.parametrize("scene", SCENES)
def test_some_schedules_of_each_scene_do_no_harm(scene: str) -> None:
    wrong = [seed for seed in range(FEW) if broken(draw(seed, [scene])) is not None]
    assert not wrong, outline(draw(wrong[0], [scene]))


@pytest.mark.parametrize("part", range(PARTS))
def test_each_document_comes_out_once_whatever_happens(part: int) -> None:
    count = SCHEDULES // PARTS
    found = campaign(part * count, count, None, os.cpu_count() or 1)
    assert not found.broken, f"python -m tests.simulation --replay {found.broken[0][0]}"


def test_a_seed_gives_the_same_run_in_every_process() -> None:
    wanted = "\n".join([outline(draw(4711)), *story(draw(4711))])
    for seed in ("0", "1", "2"):
        told = subprocess.run(
            [sys.executable, "-c", _TELL],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        assert told.stdout.strip() == wanted


_TELL = """
from tests.simulation.schedules import draw, outline, story
print(outline(draw(4711)), *story(draw(4711)), sep="\\n")
"""


def test_a_story_is_shrunk_to_what_matters() -> None:
    with MUTANTS["publish before commit"]():
        drawn = (draw(seed, ["durable"]) for seed in range(10_000))
        found = next(one for one in drawn if broken(one) is not None)
        short = shrunk(found)
        told = "\n".join(story(short))
    # One crash, or a power cut, between the two. Its scene may need one more to get there.
    assert len(short.interruptions) <= 2
    assert any(one.kind in ("crash", "cut", "reboot", "pause") for one in short.interruptions)
    assert "BROKEN: " in told
    assert outline(short) in outline(schedule(short.scene.name, *short.interruptions))


def test_a_run_that_does_not_end_is_broken() -> None:
    forever = seam(Loop, "rest", lambda self: self.look())
    with forever:
        assert broken(schedule("plain")) == "it does not come to rest"
