"""What is asked of Slurm, and the scripts that ask for it."""

import subprocess
from pathlib import Path

import pytest

from queuedriver.errors import BadArgument, ConfigError
from watchdogd.driver_ids import short_host
from watchdogd.pipeline.model import Drivers, Pipeline
from watchdogd.pipeline.read import parse
from watchdogd.slurm.elements import SUBMISSION, Request, Submission, requests, script

TEXT = """
[slurm]
partition = "long"
time = "90 min"
extra = ["--exclusive", "--mail-user=ann"]
[[stage]]
name = "values"
call = "a:b"
memory = "500 MB"
drivers = { min = 1, max = 4 }
[[stage]]
name = "ocr"
call = "a:b"
memory = "2 GiB"
cpus = 3.5
drivers = 2
slurm = { per = "driver", gres = "gpu:1" }
[[stage]]
name = "output"
call = "a:b"
memory = "1 GiB"
memory_per_driver = "100 MiB"
preload = true
drivers = 3
cpus = 0.5
"""


def pipeline(text: str = TEXT, file: str = "/data/p.toml") -> Pipeline:
    return parse(text, "p.toml", file)[0]


def test_stages_that_share_a_node_are_asked_for_together_and_others_each_alone() -> None:
    nodes, ocr = requests(pipeline())
    assert nodes.drivers == {"values": 4, "ocr": 0, "output": 3}
    # 100 MiB for the watchdog; what is loaded once is counted once.
    assert nodes.memory == 100 + 1908 + 1024 + 300
    assert nodes.cpus == 6
    assert nodes.name == ""
    assert (ocr.name, ocr.memory, ocr.cpus) == ("ocr", 100 + 2048, 4)
    assert ocr.drivers == {"values": 0, "ocr": 1, "output": 0}
    assert ocr.slurm.nodes == Drivers(2, 2)


def test_a_stage_that_says_no_memory_leaves_it_to_the_cluster() -> None:
    (nodes, _) = requests(pipeline(TEXT.replace('memory = "500 MB"\n', "")))
    assert nodes.memory is None
    assert "--mem" not in text_of(pipeline(), nodes)


def test_more_than_a_host_may_use_is_not_asked_for() -> None:
    (nodes, _) = requests(pipeline(TEXT + '[host]\nmemory = "1 GiB"\ncpus = 2\n'))
    assert (nodes.memory, nodes.cpus) == (100 + 1024, 2)


def test_an_element_is_told_to_leave_in_time_for_its_longest_grace() -> None:
    (nodes, ocr) = requests(pipeline(TEXT.replace('name = "ocr"', 'name = "ocr"\ngrace = "1 h"')))
    assert (nodes.leaves_before, ocr.leaves_before) == (90, 3630)


def text_of(one: Pipeline, request: Request) -> str:
    asked = Submission(number=7, stage=request.name, elements=3)
    return script(one, request, asked, "watchdogd-0123", ("/opt/w", "-m x"))


def test_a_script_asks_for_what_the_file_says_and_runs_the_watchdog_in_its_place() -> None:
    one = pipeline()
    said = text_of(one, requests(one)[0]).splitlines()
    assert said[0] == "#!/bin/bash"
    assert [line for line in said if line.startswith("#SBATCH")] == [
        "#SBATCH --job-name=p",
        "#SBATCH --comment=watchdogd-0123::7",
        "#SBATCH --array=1-3",
        "#SBATCH --nodes=1",
        "#SBATCH --ntasks=1",
        "#SBATCH --cpus-per-task=6",
        "#SBATCH --mem=3332M",
        "#SBATCH --time=90",
        "#SBATCH --partition=long",
        "#SBATCH --signal=B:TERM@90",
        "#SBATCH --open-mode=append",
        "#SBATCH --output=/data/queues/.watchdogd/logs/slurm/%A_%a.log",
        "#SBATCH --chdir=/data",
        "#SBATCH --requeue",
        "#SBATCH --exclusive",
        "#SBATCH --mail-user=ann",
    ]
    stands = f'export {SUBMISSION}=\'{{"number":7,"elements":3}}\''
    assert said[-2] == stands
    # TERM is for the batch shell, and so for the watchdog that is in its place.
    assert said[-1].startswith(
        "exec /opt/w '-m x' run /data/p.toml --drivers ocr=0 --host \"$host\" "
    )
    assert said[-1].endswith(' ${until:+--until "$until"}')


def test_an_element_of_one_stage_has_one_driver_of_that_and_none_of_others() -> None:
    one = pipeline()
    said = text_of(one, requests(one)[1])
    assert "--drivers values=0 --drivers ocr=1 --drivers output=0" in said
    assert "--gres=gpu:1\n" in said
    assert "--comment=watchdogd-0123:ocr:7\n" in said


def test_a_path_with_spaces_and_signs_stays_one_path() -> None:
    one = pipeline(file="/my data/100%/p.toml")
    said = text_of(one, requests(one)[0])
    assert '--output="/my data/100%%/queues/.watchdogd/logs/slurm/%A_%a.log"\n' in said
    assert '--chdir="/my data/100%"\n' in said
    assert "run '/my data/100%/p.toml'" in said


@pytest.mark.parametrize("path", ["/a\nb/p.toml", '/a"b/p.toml', "/a\\b/p.toml"])
def test_a_path_that_would_be_another_in_a_script_is_refused(path: str) -> None:
    one = pipeline(file=path)
    with pytest.raises(ConfigError):
        text_of(one, requests(one)[0])


@pytest.mark.parametrize("chosen", [Submission(partition='x"'), Submission(account="x\nrm -rf ~")])
def test_nothing_that_others_wrote_down_becomes_a_command(chosen: Submission) -> None:
    one = pipeline()
    with pytest.raises(ConfigError, match="cannot stand in a script"):
        script(one, requests(one)[0], chosen, "k", ("w",))


@pytest.mark.parametrize(
    ("environ", "host"),
    [
        ({"SLURM_JOB_ID": "5"}, "5_0"),
        ({"SLURM_JOB_ID": "5", "SLURM_ARRAY_JOB_ID": "4", "SLURM_ARRAY_TASK_ID": "2"}, "4_2"),
        (
            {
                "SLURM_JOB_ID": "5",
                "SLURM_ARRAY_JOB_ID": "4",
                "SLURM_ARRAY_TASK_ID": "2",
                "SLURM_RESTART_COUNT": "3",
            },
            "4_2r3",
        ),
        (
            {
                "SLURM_JOB_ID": "12345700",
                "SLURM_ARRAY_JOB_ID": "12345678",
                "SLURM_ARRAY_TASK_ID": "22",
                "SLURM_RESTART_COUNT": "1",
            },
            "12345700r1",
        ),
        # That fits, but for how often it was started again.
        (
            {
                "SLURM_JOB_ID": "1234601",
                "SLURM_ARRAY_JOB_ID": "1234567",
                "SLURM_ARRAY_TASK_ID": "34",
                "SLURM_RESTART_COUNT": "1",
            },
            "1234601r1",
        ),
    ],
)
def test_an_element_is_called_so_that_no_other_has_ids_like_its_drivers(
    environ: dict[str, str], host: str, tmp_path: Path
) -> None:
    one = pipeline()
    text = text_of(one, requests(one)[0])
    run = text.replace("exec /opt/w '-m x' run", "echo")
    said = subprocess.run(
        ["bash", "-u"], check=True, input=run, env=environ, capture_output=True, text=True
    )
    assert said.stdout.partition("--host ")[2].split() == [host]
    # As it is: a name that is too long would share ids with others.
    assert short_host(host) == host


@pytest.mark.parametrize(
    ("seconds", "minutes"), [(120, 2), (119.5, 2), (121, 3), (90061, 1502), (14400, 240)]
)
def test_a_time_is_said_in_minutes_that_have_begun(seconds: float, minutes: int) -> None:
    one = pipeline()
    chosen = Submission(time=seconds)
    assert f"--time={minutes}\n" in script(one, requests(one)[0], chosen, "k", ("w",))


def test_a_time_that_is_over_before_anything_is_done_is_refused() -> None:
    one = pipeline()
    with pytest.raises(BadArgument, match="leaves 1 min 30 s before its end"):
        script(one, requests(one)[0], Submission(time=90), "k", ("w",))
