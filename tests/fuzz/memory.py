"""Targets that read bytes in memory: names, protocols, boards."""

import contextlib
import os

from queuedriver.claims.outcomes import MAX_LATER
from queuedriver.disk.runtime import waited_for_files
from queuedriver.errors import BadArgument, BadDocid
from queuedriver.format import names
from queuedriver.processors import answers
from tests.fuzz.promise import Target, check, check_error, check_shown
from tests.item_names import format_name
from watchdogd import control, helper_messages
from watchdogd.cli.check import draw
from watchdogd.pipeline.problems import BadPipeline
from watchdogd.pipeline.read import parse as parse_pipeline
from watchdogd.report import Alien, decode

TOKEN = "h-1-0605d3a1f2b0c05a17"


def read_name(data: bytes) -> None:
    """Each name has one meaning, or none; what has one is written in one way."""
    name = os.fsdecode(data.replace(b"/", b"").replace(b"\0", b""))
    item = names.parse(name)
    if item is not None:
        assert format_name(item) == name
        assert names.objection(item.docid) is None
        assert item.docid[0] != "."
        for token in filter(None, (item.token,)):
            assert 0 <= names.parse_token(token).serial < 16**14
    else:
        assert names.why_foreign(name)
    with contextlib.suppress(BadDocid):
        docid = names.check_docid(name)
        for attempt in (0, 1, 99):
            claimed = names.working_name(docid, attempt, TOKEN)
            found = names.parse(claimed)
            assert found == names.Item(docid, "working", attempt, TOKEN)
            assert len(os.fsencode(claimed)) <= 255
        second = names.second_docid(docid, TOKEN)
        assert names.objection(second) is None


def read_pipeline(data: bytes) -> None:
    """A pipeline, or every mistake in it, each with what would be right."""
    text = data.decode("utf-8", "replace")
    try:
        pipeline = parse_pipeline(text, "pipeline.toml", "/nowhere/pipeline.toml")[0]
    except BadPipeline as error:
        check_error(error, "pipeline.toml")
        check(all(one.right for one in error.problems), error)
        return
    assert len(draw(pipeline)) == len(pipeline.stages)
    for queue in pipeline.queues:
        assert os.path.dirname(os.path.normpath(pipeline.path(queue))) == pipeline.root


def read_answer(data: bytes) -> None:
    """One answer of a server, or a fault that says what was wrong; however the bytes come."""
    said = bytearray()
    try:
        for start in range(0, len(data), 7):
            said += data[start : start + 7]
            while (line := answers.take_line(said)) is not None:
                answer = answers.parse(line)
                if answer.later is not None:
                    assert 0 <= answer.later <= MAX_LATER
    except answers.Fault as fault:
        check(len(str(fault)) < 2000, "a fault is a sentence")


def read_messages(data: bytes) -> None:
    """What the watchdog and its helper say to each other; from neither side is it an exception."""
    for line in data.split(b"\n"):
        for kind in (helper_messages.Message, helper_messages.Errands, helper_messages.Brief):
            helper_messages.understood(line, kind)


def read_host(data: bytes) -> None:
    """What a watchdog of another host, or somebody in its name, says of itself."""
    with contextlib.suppress(Alien):
        decode(data)


def read_scale(data: bytes) -> None:
    """What the files say that steer a pipeline, and what their names ask for."""
    text = data.decode(errors="replace")
    try:
        number = control.parse_number(text)
        assert number is None or 0 <= number <= 9999
    except BadArgument as error:
        check_shown([str(error)])
    check_shown(control.parse_quit(text)[1])
    for name in os.fsdecode(data).split("\n"):
        about = control.parse_scale(name)
        if about is not None:
            assert control.scale_name(*about) == name
        found = control.parse_request(name)
        if found is not None:
            assert control.request_name(*found) == name


def read_stacks(data: bytes) -> None:
    """What faulthandler wrote while a driver was ended, cut anywhere."""
    text = data.decode(errors="replace")
    waited_for_files(text.partition("\n")[0], text)


PIPELINE = b"""[pipeline]
name = "serif"
root = "queues"
on_event = ["notify", "{event}"]
[[stage]]
name = "values"
drivers = { min = 1, max = 8 }
call = "values:process"
timeout = "10 min"
publish = "{docid}.xml.ready"
[[stage]]
name = "parse"
memory = "600 MB"
command = ["parse", "{input}", "{output}"]
env = { LANG = "C" }
[host]
cpus = 4
"""
HOST = (
    b'{"version":1,"host":"rose","pid":1,"identity":{"host":"rose","machine":"m","boot":"b",'
    b'"namespace":1,"pid":1,"ticks":2},"started_at":1.0,"at":2.0,"name":"serif","stages":'
    b'[{"name":"parse","inputs":["input"],"rate":1.5}],"drivers":[{"name":"parse-1","id":'
    b'"rose-parse-1","stage":"parse","state":"ready","pid":1,"document":"doc"}],"notes":["n"]}'
)

MEMORY = {
    "names": Target(
        read_name,
        (
            b"doc.ready",
            b"doc.failed2",
            f"doc.failed.{TOKEN}.working".encode(),
            f"doc.{TOKEN}.writing.xml".encode(),
            b"doc.64f0a1b2.later",
            b"caf\xe9~0605d3a1f2b0c05a17.7.written",
        ),
    ),
    "pipeline": Target(read_pipeline, (PIPELINE,)),
    "answers": Target(
        read_answer,
        (
            b'{"ready": true}\n{"ok": true}\n',
            b'{"outputs": [{"path": "/p", "docid": "d", "ext": "xml"}]}\n',
            b'{"error": "no", "permanent": true}\n{"later": 1e3, "reason": "busy"}\n',
        ),
    ),
    "messages": Target(
        read_messages,
        (
            b'{"snapshot":{"queues":{"in":{"ready":3}},"controls":{"scale":{"parse":2}}}}\n',
            b'{"recover":["in"],"publish":{"a":1},"look":true}\n',
            b'{"recovered":[["in",1,["doc"]]],"alive":true}\n',
        ),
    ),
    "hosts": Target(read_host, (HOST,)),
    "control": Target(
        read_scale,
        (
            b"parse=4\nocr=auto@rose\n# no\n",
            b"now",
            b"scale-parse@rose",
            b"restart-parse-2@rose-0605d3a1f2b0c05a17\nreload-1700000000",
        ),
    ),
    "stacks": Target(
        read_stacks, (b'Timeout (0:00:01)!\nThread 0x1 (most recent call first):\n  File "a"\n',)
    ),
}
