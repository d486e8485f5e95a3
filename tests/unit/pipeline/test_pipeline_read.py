"""What a pipeline file means, and what its author is told when it means nothing."""

# ruff: noqa: E501 - a complaint is one line, however long

import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuedriver.errors import ConfigError
from watchdogd.pipeline.model import (
    BETWEEN_STAGES,
    Drivers,
    Host,
    Pipeline,
    Stage,
)
from watchdogd.pipeline.problems import BadPipeline, Problem
from watchdogd.pipeline.read import parse, read
from watchdogd.pipeline.schema import PIPELINE_KEYS, SHARED_KEYS, STAGE_KEYS

SERIF = """
[pipeline]
name = "serif"
root = "queues"            # relative to this file
retries = 1

[[stage]]
name = "values"            # input queue: the previous stage's output, or "input" for the first
drivers = 1
memory = "600 MB"
call = "serif.values:process"

[[stage]]
name = "parse"
drivers = { min = 1, max = 8 }
memory = "2 GB"
command = ["parse", "{input}", "{output}"]
timeout = "10 min"

[[stage]]
name = "output"
drivers = 2
publish = "{docid}.xml"
call = "serif.output:process"

[host]
memory = "24 GB"
cpus = 16
"""
ONE = '[[stage]]\nname = "one"\ncall = "a:b"\n'
TWO = '[[stage]]\nname = "two"\ncall = "a:b"\n'


def understood(text: str, host: str | None = None) -> Pipeline:
    return parse(text, "p.toml", "/data/p.toml", host)[0]


def stage_with(line: str, pipeline: str = "") -> Stage:
    return understood(f"[pipeline]\n{pipeline}\n{ONE}{line}\n").stages[0]


def problems(text: str) -> tuple[Problem, ...]:
    with pytest.raises(BadPipeline) as caught:
        understood(text)
    return caught.value.problems


def only_problem(text: str) -> str:
    (one,) = problems(text)
    return str(one)


def test_the_example_of_the_documentation_is_understood() -> None:
    pipeline = understood(SERIF)
    assert (pipeline.name, pipeline.root, pipeline.directory) == ("serif", "/data/queues", "/data")
    assert pipeline.host == Host(memory=24_000_000_000, cpus=16.0)
    values, parse_, output = pipeline.stages
    assert values == Stage(
        name="values",
        inputs=("input",),
        outputs=("values",),
        drivers=Drivers(1, 1),
        kind="call",
        work="serif.values:process",
        memory=600_000_000,
        max_output_items=BETWEEN_STAGES,
    )
    assert (parse_.inputs, parse_.outputs) == (("values",), ("parse",))
    assert parse_.drivers == Drivers(1, 8)
    assert parse_.work == ("parse", "{input}", "{output}")
    assert (parse_.timeout, parse_.max_output_items) == (600.0, BETWEEN_STAGES)
    assert (output.publish, output.max_output_items) == ("{docid}.xml", None)


def test_a_stage_that_says_nothing_gets_the_defaults_of_the_model() -> None:
    usual = Stage(
        name="one",
        inputs=("input",),
        outputs=("one",),
        drivers=Drivers(1, 1),
        kind="call",
        work="a:b",
    )
    assert understood(ONE) == Pipeline(
        name="p", file="/data/p.toml", root="/data/queues", stages=(usual,)
    )


def test_every_key_of_the_model_can_be_said() -> None:
    told = {"input": "inputs", "output": "outputs", "call": "work"}
    told |= dict.fromkeys(("command", "server", "broker"), "")
    fields = {told.get(key, key) for key in STAGE_KEYS} - {""}
    assert fields == set(Stage.__struct_fields__) - {"kind", "intake"}
    assert set(PIPELINE_KEYS) - set(SHARED_KEYS) == set(Pipeline.__struct_fields__) - {
        *("file", "stages", "host", "slurm"),
    }


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ('input = "a"', "inputs", ("a",)),
        ('input = ["urgent", "normal"]', "inputs", ("urgent", "normal")),
        ('output = ["a", "b"]', "outputs", ("a", "b")),
        ("output = []", "outputs", ()),
        ("drivers = 0", "drivers", Drivers(0, 0)),
        ("drivers = { min = 0, max = 9999 }", "drivers", Drivers(0, 9999)),
        ("timeout = 90", "timeout", 90.0),
        ("timeout = 0.5", "timeout", 0.5),
        ('timeout = "1.5 h"', "timeout", 5400.0),
        ('timeout = "auto"', "timeout", "auto"),
        ('timeout = "none"', "timeout", None),
        ("timeout = false", "timeout", None),
        ("hard_after = 0", "hard_after", 0.0),
        ('startup_timeout = "10 min"', "startup_timeout", 600.0),
        ("memory = 1_000", "memory", 1000),
        ("memory = 1.5e9", "memory", 1_500_000_000),
        ('max_memory = "1 GiB"', "max_memory", 1 << 30),
        ("cpus = 0.5", "cpus", 0.5),
        ('env = { A = "x", OMP_NUM_THREADS = 1 }', "env", {"A": "x", "OMP_NUM_THREADS": "1"}),
        ("preload = true", "preload", True),
        ('preload = "a.models:load"', "preload", "a.models:load"),
        ("max_output_items = false", "max_output_items", None),
        ('max_documents = "none"', "max_documents", None),
        ('archive = "../done"', "archive", "/data/done"),
        ('archive = "/srv/done"', "archive", "/srv/done"),
        ("trial_every = 0", "trial_every", 0.0),
        ('publish = "{stem}.txt.ready"', "publish", "{stem}.txt.ready"),
        ("log_keep = 0", "log_keep", 0),
        ("retries = 3.0", "retries", 3),
    ],
)
def test_a_value_is_read_as_people_write_it(line: str, key: str, value: object) -> None:
    assert getattr(stage_with(line), key) == value


def test_words_of_a_command_are_split_like_a_shell_would() -> None:
    text = '[[stage]]\nname = "one"\nserver = "my-model --name \'two words\'"\n'
    (stage,) = understood(text).stages
    assert (stage.kind, stage.work) == ("server", ("my-model", "--name", "two words"))


def test_broker_listens_in_one_place_or_in_several() -> None:
    (stage,) = understood(BROKER % f"'fuq'\n{LISTEN}").stages
    assert (stage.kind, stage.work, stage.listen) == ("broker", "fuq", ("tcp://127.0.0.1:6714",))
    several = "listen = ['tcp://127.0.0.1:1', 'tcp://[::1]:2']"
    (stage,) = understood(BROKER % f"'scale0'\n{several}").stages
    assert stage.listen == ("tcp://127.0.0.1:1", "tcp://[::1]:2")


def test_worker_has_no_queues_and_the_stage_after_it_takes_from_the_one_before_it() -> None:
    worker = f"{CALL % 'hands'}worker = 'scale0'\n{CONNECT}\n"
    stages = understood(f"{CALL % 'one'}{worker}{CALL % 'two'}").stages
    queues = [(stage.inputs, stage.outputs) for stage in stages]
    assert queues == [(("input",), ("one",)), ((), ()), (("one",), ("two",))]
    assert (stages[1].worker, stages[1].connect) == ("scale0", "tcp://rose:6714")


def test_what_pipeline_says_holds_for_every_stage_that_says_nothing_itself() -> None:
    shared = 'grace = "1 h"\ntimeout = 9\nenv = { A = 1, B = 1 }'
    stage = stage_with('grace = 5\nenv.B = "2"', shared)
    assert (stage.grace, stage.timeout, stage.env) == (5.0, 9.0, {"A": "1", "B": "2"})
    assert {key for key in STAGE_KEYS if key not in SHARED_KEYS} == {
        *("name", "input", "output", "call", "command", "server", "preload", "publish", "archive"),
        *("memory_per_driver", "broker", "listen", "worker", "connect", "slurm"),
    }


def test_bounds_for_all_stages_are_for_the_queues_between_them() -> None:
    shared = '[pipeline]\nmax_output_items = 7\nmax_output_bytes = "1 GB"\n'
    first, last = understood(shared + ONE + TWO).stages
    assert (first.max_output_items, first.max_output_bytes) == (7, 10**9)
    assert (last.max_output_items, last.max_output_bytes) == (None, None)
    first, last = understood(shared + ONE + "max_output_items = 9\n" + TWO).stages
    assert first.max_output_items == 9
    first, last = understood(ONE + TWO + "max_output_items = 3\n").stages
    assert (first.max_output_items, last.max_output_items) == (BETWEEN_STAGES, 3)


def test_a_stage_one_of_whose_outputs_is_a_result_is_bounded_by_none() -> None:
    text = ONE + 'output = ["x", "result"]\n[[stage]]\nname = "two"\ninput = "x"\ncall = "a:b"\n'
    assert understood(text).stages[0].max_output_items is None


def test_a_host_has_its_own_room_and_its_own_drivers() -> None:
    text = (
        ONE
        + '[host]\nmemory = "8 GB"\ncpus = 4\n'
        + '[hosts.rose]\nmemory = "64 GB"\ndrivers = { one = { min = 0, max = 30 } }\n'
        + '[hosts."fern.lab.org"]\ncpus = "none"\nrebalance_every = "2 min"\n'
    )
    usual = understood(text)
    assert (usual.host, usual.stages[0].drivers) == (Host(memory=8 * 10**9, cpus=4), Drivers(1, 1))
    rose = understood(text, "rose.lab.org")
    assert rose.host == Host(memory=64 * 10**9, cpus=4)
    assert rose.stages[0].drivers == Drivers(0, 30)
    fern = understood(text, "fern.lab.org")
    assert fern.host == Host(memory=8 * 10**9, cpus=None, rebalance_every=120.0)
    assert understood(text, "moss") == usual


def test_the_root_is_relative_to_the_file_and_may_be_anywhere(tmp_path: Path) -> None:
    file = tmp_path / "sub" / "my.toml"
    file.parent.mkdir()
    below, beside, elsewhere = file.parent / "q", tmp_path / "q", Path("/srv/q")
    for root, path in (("q", below), ("../q", beside), ("/srv/q", elsewhere)):
        file.write_text(f'[pipeline]\nroot = "{root}"\n{ONE}')
        pipeline = read(file)
        assert (pipeline.root, pipeline.file, pipeline.name) == (str(path), str(file), "my")
    assert understood('[pipeline]\nroot = "~/q"\n' + ONE).root == os.path.expanduser("~/q")


def test_what_is_read_survives_a_pipe_to_another_process() -> None:
    pipeline = understood(SERIF)
    assert msgspec.json.decode(msgspec.json.encode(pipeline), type=Pipeline) == pipeline


TWENTY = """
[pipeline]
name = ""
retires = 1
root = 3
grace = "-5 s"

[[stage]]
name = "values"
call = "serif/values.py:process"
drivers = -1
memory = "600 M"
timout = "10 min"

[[stage]]
name = "a stage with a name"
input = [
    "values",
    "a/b",
]
command = "parse {inptu}"
timeout = "10 minits"
drivers = { min = 9, max = 8 }
env = { LANG = true }

[[stage]]
name = "output"
input = "parsed"
output = "parsed"
publish = "same.xml"
batch = 1.5
max_memory = 0
durable = "yes"

[[stage]]
name = "output"
input = "x"
call = "a:b"
server = "c"

[host]
cpus = "many"

[hosts.rose]
drivers = { outputs = 3 }
"""
TOLD = """
3: [pipeline]: name = "" is empty; right would be as in "serif"
4: [pipeline]: retires is no key that is known here; right would be retries
5: [pipeline]: root = 3 is a number; right would be a text, as in "queues"
6: [pipeline]: grace = "-5 s" is negative; right would be 90 (seconds), "500 ms", "1.5 h" or "10 min"
10: stage "values": call = "serif/values.py:process" names a file; right would be the module, "serif.values:process"
11: stage "values": drivers = -1 is out of bounds; right would be a whole number, 0 to 9999
12: stage "values": memory = "600 M" may mean powers of 1000 or of 1024; right would be 600 MB or 600 MiB
13: stage "values": timout is no key that is known here; right would be timeout
16: stage "a stage with a name": name = "a stage with a name" is 19 characters long; right would be letters, digits and _, with single - between them, at most 16, as in "parse"
19: stage "a stage with a name": input[2] = "a/b" is a path; all queues are next to one another in the root; right would be the name of a directory below the root, as in "parsed"
21: stage "a stage with a name": command = "parse {inptu}" cannot work: the command has {inptu}, which is not known; known are {input}, {output}, {docid} and {attempt}; write {{inptu}} for the text itself
22: stage "a stage with a name": timeout = "10 minits" is not a duration: there is no unit 'minits'; right would be 90, 500 ms, 1.5 h or 10 min
23: stage "a stage with a name": drivers = { min = 9, max = 8 } has a min that is more than its max; right would be 3, or { min = 1, max = 8 }
24: stage "a stage with a name": env.LANG = true is a truth value; right would be a text, as in "1"
26: stage "output": does not say what is done to a document; right would be a call = "module:function", a command = […] or a server = […]
29: stage "output": output has 'parsed', which is an input of the same stage; right would be another queue
30: stage "output": publish = "same.xml" cannot work: names all outputs alike; put {docid} in it
31: stage "output": batch = 1.5 is not whole; right would be a whole number, 1 or more
32: stage "output": max_memory = 0 is nothing at all; right would be 1000 (bytes), "600 MB" or "1.5 GiB"
33: stage "output": durable = "yes" is a text; right would be true or false, without quotes
36: stage "output": name = "output" is what stage 3 is called, too; right would be another
39: stage "output": server is one too many: call and server each say what is done to a document; right would be one of them
42: [host]: cpus = "many" is a text; right would be a number above 0, as in 1 or 0.5
45: [hosts.rose]: drivers.outputs is no stage; right would be output
"""


def test_a_file_with_two_dozen_mistakes_names_each_with_its_line_and_what_would_be_right() -> None:
    with pytest.raises(BadPipeline) as caught:
        understood(TWENTY)
    told = TOLD.strip().splitlines()
    assert len(told) > 20
    assert str(caught.value).splitlines() == [f"p.toml:{line}" for line in told]
    assert caught.value.exit_code == ConfigError.exit_code == 78
    lines = TWENTY.splitlines()
    for one in caught.value.problems:
        key = one.key.replace("[2]", "").rpartition(".")[2]
        # On the line of the key; what stands in a list has one of its own.
        assert key in lines[one.line - 1] or one.found in lines[one.line - 1]
        assert one.problem
        assert one.right


COMMAND = "[[stage]]\nname = 'x'\ncommand = 'x {output%s}'\noutput = %s\n"
CALL = "[[stage]]\nname = '%s'\ncall = 'a:b'\n"
BROKER = "[[stage]]\nname = 'x'\nbroker = %s"
LISTEN = "listen = 'tcp://127.0.0.1:6714'"
CONNECT = "connect = 'tcp://rose:6714'"
SERVER = "[[stage]]\nname = 'x'\nserver = %s\n"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('root = "x"', "root is no key that is known here; right would be to write it below [pipe"),
        ("workers = 3", "workers is no key that is known here; right would be drivers"),
        ("Max-Age = 3", "Max-Age is no key that is known here; right would be max_age"),
        ("drivers = 10_000", "is out of bounds; right would be a whole number, 0 to 9999"),
        ("drivers = 1.5", "is not whole"),
        ("drivers = nan", "drivers = nan is no finite number; right would be 3, or"),
        ('drivers = "3"', 'drivers = "3" is a text'),
        ("drivers = { max = 3 }", "drivers = { max = 3 } has no min"),
        ("drivers = { min = 1, max = 2, x = 3 }", "drivers.x is no key of drivers"),
        ("timeout = 0", "timeout = 0 is nothing at all"),
        ("timeout = true", "timeout = true is a truth value"),
        ("timeout = inf", "timeout = inf is no finite number"),
        ("timeout = -1", "timeout = -1 is negative"),
        ("timeout = 1e300", "is too much to be meant"),
        ('timeout = "200 years"', "there is no unit 'years'"),
        ('timeout = "99999 weeks"', "is longer than 100 years"),
        ("grace = 07:30:00", "is a date or a time"),
        (f"max_documents = {10**400}", "is out of bounds"),
        ("memory = [1, 2]", "memory = [1, 2] is a list"),
        ("cpus = 0", "is out of bounds; right would be a number above 0"),
        ('order = "fare"', 'is none of the words it may be; right would be "fair"'),
        ("order = 3", 'right would be "fair" or "age" or "name"'),
        ("env = 3", "env = 3 is a number; right would be { OMP_NUM_THREADS = 1"),
        ('env = { "A=B" = "x" }', "cannot be the name of a variable"),
        ('env = { A = "\\u0000" }', "has a NUL in it"),
        ("input = []", "input = [] has nothing in it"),
        ('input = ["a", "a"]', 'input[2] = "a" stands there twice'),
        ("input = 3", "input = 3 is a number"),
        ('input = ".a"', "starts with a dot"),
        ('input = "a\\nb"', r'input = "a\nb" has control characters in it'),
        (f'input = "{"é" * 128}"', "is longer than the 255 bytes"),
        ('publish = "{name}.xml"', "cannot work: no field {name}; it may use {docid} and {stem}"),
        ('publish = "a/{docid}"', "does not give a file name: it has a '/'"),
        ("publish = 3", "publish = 3 is a number"),
        ("preload = 3", "preload = 3 is a number"),
        ('preload = "models"', "names no function"),
        ('archive = "archive/\\u0007"', "has control characters in it"),
        ("memory_per_driver = 10", "says what a driver takes beside what is loaded once, and noth"),
        ("memory_per_driver = 10\npreload = true", "is not enough to go by; say memory, too"),
        ("batch = 2\nretries = 0", "batch needs retries; set retries to 1 or more"),
        ("publish = '{docid}.x'\noutput = []", "publish names what there is none of"),
    ],
)
def test_a_mistake_in_a_stage_gets_one_complaint(line: str, told: str) -> None:
    complaint = only_problem(ONE + line)
    assert complaint.startswith('p.toml:4: stage "one": ')
    assert told in complaint


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("retries = 1\n" + ONE, "right would be to write it below [pipeline] or [[stage]]"),
        ("[pipline]\n" + ONE, "pipline is no table that is known here; right would be [pipeline]"),
        ("[[stages]]\n" + ONE, "stages is no table that is known here; right would be [[stage]]"),
        ("[zzz]\n" + ONE, "known are [pipeline], [[stage]], [host], [hosts.NAME]"),
        ("[pipeline]\ncall = 'a:b'\n" + ONE, "right would be to write it below [[stage]]"),
        (
            "[stage]\nname = 'x'",
            "[stage] is one table, and not one of many; right would be [[stage]]",
        ),
        ("stage = 3", "stage = 3 is a number; right would be [[stage]]"),
        ("stage = ['x']", 'stage 1: "x" is a text; right would be [[stage]]'),
        ("pipeline = 3\n" + ONE, "[pipeline]: 3 is a number; right would be [pipeline]"),
        ("hosts = 3\n" + ONE, "hosts = 3 is a number; right would be [hosts.NAME]"),
        (ONE + "[hosts]\nrose = 3", "[hosts.rose]: 3 is a number"),
        (ONE + "[hosts.rose]\ndrivers = 3", "drivers = 3 is a number; right would be { parse = 3"),
        (ONE + "[hosts.rose]\ndrivers = { one = -3 }", "drivers.one = -3 is out of bounds"),
        (ONE + "[hosts.rose]\ndrivers = { x = 3 }", "drivers.x is no stage; the stages are one"),
        ("[pipeline]\n", "there is no stage; right would be a [[stage]] with a name"),
        ("[[stage]]\ncall = 'a:b'", "stage 1: name is missing"),
        ("[[stage]]\nname = 'a b'\ncall = 'a:b'", "cannot be part of a driver's id"),
        ("[[stage]]\nname = 3\ncall = 'a:b'", "stage 1: name = 3 is a number"),
        ("[[stage]]\nname = 'x'\ncall = 'a b:c'", "names no function"),
        ("[[stage]]\nname = 'x'\ncall = ' '", "names nothing"),
        ("[[stage]]\nname = 'x'\ncall = ['a:b']", "is a list; right would be"),
        (SERVER % "'x | y'", "cannot work: it has '|', which only a shell understands"),
        (SERVER % "[]", "server = [] cannot work: the command is empty"),
        (SERVER % '"a \'"', "cannot work: it cannot be split: No closing quotation"),
        (SERVER % "['a', 1]", 'server[2] = 1 is a number; right would be a text, as in "1"'),
        (SERVER % "'x --file={input}'", "has {input}, and a server is not started for a document"),
        (SERVER % "1", "server = 1 is a number"),
        (SERVER % "'x'\npreload = true", "preload loads a Python module, and this stage has none"),
        (BROKER % "'pingpng'", 'is none of the words it may be; right would be "pingpong"'),
        (BROKER % "'pingpong'", "broker does not say where its workers find it; right would be to"),
        (
            BROKER % "'scale0'\nlisten = 'tcp://*:6714'",
            "can be reached from other hosts, for which a broker needs keys",
        ),
        (
            BROKER % "'scale0'\nlisten = ['here']",
            'listen[1] = "here" is no address; right would be',
        ),
        (BROKER % "'fuq'\nlisten = 1", "listen = 1 is a number; right would be"),
        (BROKER % f"'fuq'\n{LISTEN}\ninput = ['a', 'b']", "broker deals from one queue, and this"),
        (BROKER % f"'pingpong'\n{LISTEN}\noutput = []", "broker gets a result for each document"),
        (BROKER % f"'fuq'\n{LISTEN}\ndrivers = 2", "broker listens where no second one can"),
        (BROKER % f"'fuq'\n{LISTEN}\npreload = true", "preload loads a Python module"),
        (SERVER % f"'x'\n{LISTEN}", "listen is for a broker, and this stage has none"),
        (SERVER % "'x'\nworker = 'scale0'", "worker does not say where its broker is"),
        (SERVER % f"'x'\n{CONNECT}", "connect is for a worker, and this stage is none"),
        (SERVER % "'x'\nworker = 'fuq'", "is none of the words it may be"),
        (SERVER % f"'x'\nworker = 'scale0'\n{CONNECT}\noutput = 'a'", "output is for a stage with"),
        (BROKER % f"'fuq'\n{LISTEN}\nworker = 'scale0'\n{CONNECT}", "worker does what a broker"),
        (COMMAND % ("", "[]"), "command has {output}, and the stage has no output"),
        (COMMAND % ("", "['a', 'b']"), "output has 'b', into which the command puts nothing"),
        (COMMAND % (":b", "['a', 'b']"), "output has 'a', into which the command puts nothing"),
        (COMMAND % (":b", "'a'"), "command has {output:b}, which is no output of the stage; its"),
        (
            "[[stage]]\nname = 'x'\ncommand = ['sh', '-c', 'a {input}']",
            "sh would run what stands in the document's name",
        ),
        ("[pipeline]\non_event = ['x', '{even}']\n" + ONE, "has {even}, which is not known; known"),
        (ONE + "output = []\n" + TWO, "input is missing, and the stage before has no output"),
        (ONE + "output = ['a', 'b']\n" + TWO, "before has 2 outputs: a, b; right would be as in i"),
    ],
)
def test_a_mistake_anywhere_gets_one_complaint(text: str, told: str) -> None:
    assert told in only_problem(text)


def test_a_mistake_in_what_holds_for_all_stages_is_told_once_and_where_it_is() -> None:
    text = f"[pipeline]\nretries = 0\ngrace = 'x'\n{ONE}batch = 3\n{TWO}"
    told = [(one.line, one.where, one.key) for one in problems(text)]
    assert told == [(3, "[pipeline]", "grace"), (7, 'stage "one"', "batch")]
    # Nothing of the stage's own says it.
    text = f"[pipeline]\nbatch = 3\n{ONE}retries = 0\n"
    assert [(one.line, one.where) for one in problems(text)] == [(2, 'stage "one"')]


def test_a_mistake_does_not_bring_others_along() -> None:
    """What cannot be read is at no default from which something else would follow."""
    text = """
[[stage]]
name = "a b"
call = "a:b"
[[stage]]
name = "c"
input = 3
command = "x {output:d}"
output = 4
[[stage]]
name = "d"
preload = 3
memory_per_driver = 4
server = []
[hosts.rose]
drivers = { "a b" = 3 }
"""
    told = [(one.line, one.key) for one in problems(text)]
    assert told == [(3, "name"), (7, "input"), (9, "output"), (12, "preload"), (14, "server")]


def told_of(path: Path) -> tuple[str, int]:
    with pytest.raises(BadPipeline) as caught:
        read(path)
    return str(caught.value), caught.value.exit_code


def test_a_file_that_cannot_be_read_says_why_in_a_line(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    told = f"{file}: there is no such file; name a pipeline file"
    assert told_of(file) == (told, 66)
    assert told_of(file / "x")[1] == 66
    assert told_of(tmp_path) == (f"{tmp_path}: it is a directory; name a pipeline file", 78)
    for data in (b"", b" \n\n", b"\xef\xbb\xbf"):
        file.write_bytes(data)
        assert told_of(file)[0].startswith(f"{file}: it is empty; right would be a [[stage]]")
    file.write_bytes(b'a = 1\n\nb = "caf\xe9"\n')
    assert told_of(file) == (f"{file}:3: it is not UTF-8 (byte 0xe9); save it as UTF-8", 78)
    file.write_bytes(b"#" * 2_000_000)
    assert "is larger than 1000000 bytes" in told_of(file)[0]
    file.unlink()
    os.mkfifo(file)
    assert "is not a regular file" in told_of(file)[0]


@pytest.mark.parametrize(
    ("text", "root"),
    [
        ('[pipeline]\nroot = "q"\n[[stage]]\nname = 3\n', "q"),
        ("[pipeline]\nroot = '/srv/q'\nname = x\n", "/srv/q"),
        ('[pipeline]\nroot = "q"\n# caf\udce9\n[[stage]]\n', "q"),
        ('pipeline.root = "../q"\n[[stage]', "../q"),
        ("[pipeline]\nroot = 3\n" + ONE, "queues"),
        ("[[stage]\n", "queues"),
    ],
)
def test_a_file_with_mistakes_still_says_where_its_queues_are(
    tmp_path: Path, text: str, root: str
) -> None:
    file = tmp_path / "p.toml"
    file.write_text(text, errors="surrogateescape")
    with pytest.raises(BadPipeline) as caught:
        read(file)
    assert caught.value.root == os.path.normpath(tmp_path / root)


def test_a_file_that_is_not_there_says_nothing_of_its_queues(tmp_path: Path) -> None:
    with pytest.raises(BadPipeline) as caught:
        read(tmp_path / "none.toml")
    assert caught.value.root is None


def test_a_file_that_begins_like_some_editors_begin_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_bytes(b"\xef\xbb\xbf" + SERIF.replace("\n", "\r\n").encode())
    assert read(file).name == "serif"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "a = 1\nname = serif\n",
            "p.toml:2: not TOML at column 8: Invalid value; right would be a",
        ),
        ("a = 1\nname = serif\n", "\n    name = serif"),
        ("[[stage]\n", "p.toml:1: not TOML at column 8"),
        ('a = "x', "p.toml:1: not TOML at the end: Unterminated string; right would be TOML"),
        ("a = 1\na = 2\n", "it is there already: right would be each key once"),
        ("[pipeline]\n[pipeline]\n", "it is there already: right would be each table once"),
        ("just words", "right would be key = value"),
        ("a = " + "[" * 5000, "it is nested too deeply"),
        ("a = " + "9" * 5000, "p.toml: not TOML"),
    ],
)
def test_what_is_no_toml_is_shown_with_its_line(text: str, told: str) -> None:
    assert told in only_problem(text)


@given(st.text("[]{}=\"'#\n.,a1 \\", max_size=60))
def test_any_text_is_a_pipeline_or_has_complaints(text: str) -> None:
    with pytest.raises(BadPipeline) as caught:
        understood(text)
    assert caught.value.problems


_WORDS = ["none", "auto", "10 min", "2 GB", "a:b", "fair", "{docid}.ready"]
_PLAIN = st.integers() | st.floats() | st.booleans() | st.text(max_size=8) | st.sampled_from(_WORDS)
_KEYS = st.sampled_from(["min", "max", "x"])
VALUES = st.recursive(
    _PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=4,
)


def toml(value: object) -> str:
    """A value as a file may have it."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {toml(value[key])}' for key in value)} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, str):
        return '"' + "".join(f"\\U{ord(char):08x}" for char in value) + '"'
    return str(value).lower() if isinstance(value, bool) else repr(value)


@given(st.dictionaries(st.sampled_from(sorted(STAGE_KEYS)), VALUES, max_size=4))
def test_whatever_a_key_holds_it_is_read_or_complained_of(keys: dict[str, object]) -> None:
    said = "".join(f"{key} = {toml(keys[key])}\n" for key in keys)
    usual = {"name": '"one"', "call": '"a:b"'}
    said += "".join(f"{key} = {usual[key]}\n" for key in usual if key not in keys)
    where = set()
    try:
        stage: Stage | None = understood(f"[[stage]]\n{said}").stages[0]
    except BadPipeline as error:
        stage, where = None, {one.where for one in error.problems}
    assert stage is None or stage.options().check()
    assert where <= {f'stage "{keys.get("name", "one")}"', "stage 1"}
