"""Every key of a pipeline file: where it may stand, and how its value is read.

A reader takes what tomllib found and returns what is meant by it, or raises Wrong, which says what
is wrong with it and what would be right.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import NoneType
from typing import Any, Literal, NoReturn, get_args, get_origin

from queuedriver.doors import PROTOCOLS
from queuedriver.errors import BadArgument, ConfigError
from queuedriver.format.names import check_driver_id
from queuedriver.format.settings import check_publish
from queuedriver.format.units import MAX_DURATION, MAX_SIZE, parse_duration, parse_size, shown
from queuedriver.intake.options import OBJECTIONS, IntakeOptions
from queuedriver.options import Said, StageOptions, rows
from watchdogd.pipeline.model import EVENT_FIELDS, MAX_DRIVERS, MAX_STAGE_NAME, Drivers, Kind
from watchdogd.pipeline.problems import NOTHING, Wrong, nearest

Reader = Callable[[Any], Any]
# The keys of a table; that of a table within it has keys of its own.
Keys = Mapping[str, "Reader | Keys"]

# What a file system takes as one name, in bytes.
_MAX_NAME = 255
_FIELD = re.compile(r"\{(\w+)\}")
_BOUNDS = ("min", "max")

# What tomllib finds, as people call it.
_KINDS = {
    bool: "a truth value",
    str: "a text",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "a table",
}

_DURATION = 'right would be 90 (seconds), "500 ms", "1.5 h" or "10 min"'
_SIZE = 'right would be 1000 (bytes), "600 MB" or "1.5 GiB"'
_DRIVERS = "right would be 3, or { min = 1, max = 8 }"
_CALL = 'right would be "package.module:function", or the name of a plug-in'
_FUNCTION = 'right would be "package.module:function", true or false'
_WORDS = 'right would be as in ["pdftotext", "{input}", "{output}"]'
_PUBLISH = 'right would be "{docid}.ready", or "{stem}.txt" in a directory that no stage takes from'
_ADDRESS = "right would be as in tcp://127.0.0.1:6714"
_FURTHER = 'right would be as in ["--exclusive"]'
_QUEUE = 'right would be the name of a directory below the root, as in "parsed"'
_NAME = (
    f"right would be letters, digits and _, with single - between them, at most {MAX_STAGE_NAME}, "
    'as in "parse"'
)


def kind_of(value: Any) -> str:
    """Return what somebody wrote, in a word."""
    if isinstance(value, float) and not math.isfinite(value):
        return "no finite number"
    return _KINDS.get(type(value), "a date or a time")


def _expect(kind: str, value: Any, right: str) -> Any:
    """Return a value that is of a kind."""
    if kind_of(value) != kind:
        raise Wrong(value, f"is {kind_of(value)}", right)
    return value


def _printable(value: Any, right: str) -> str:
    """Return a text with something in it that can be shown."""
    if not value.strip():
        raise Wrong(value, "is empty", right)
    if not value.isprintable():
        raise Wrong(value, "has control characters in it", right)
    return str(value)


def _each(parts: Iterable[tuple[Any, Any]], reader: Reader) -> dict[Any, Any]:
    """Return all parts as the reader reads them, or raise all that is wrong with any of them."""
    found, mistakes = {}, []
    for part, value in parts:
        try:
            found[part] = reader(value)
        except Wrong as wrong:
            for one in (wrong, *wrong.others):
                one.path = (part, *one.path)
                mistakes.append(one)
    _raise_all(mistakes)
    return found


def _raise_all(mistakes: Sequence[Wrong]) -> None:
    if mistakes:
        first, *first.others = mistakes
        raise first


def _optional(reader: Reader, value: Any, also: Sequence[str] = ()) -> Any:
    """Read a value, or "none", or false; or one of further words, which stand for themselves."""
    if value is False or value == "none":
        return None
    return value if value in also else reader(value)


# Texts, switches and numbers


def _text(example: str, value: Any) -> str:
    text = _expect("a text", value, f'right would be a text, as in "{example}"')
    return _printable(text, f'right would be as in "{example}"')


def _switch(value: Any) -> bool:
    return bool(_expect("a truth value", value, "right would be true or false, without quotes"))


def _choice(words: Sequence[str], value: Any) -> str:
    if value in words:
        return str(value)
    near = nearest(value, words) if isinstance(value, str) else None
    known = " or ".join(f'"{word}"' for word in words)
    right = f'right would be "{near}"' if near else f"right would be {known}"
    raise Wrong(value, "is none of the words it may be", right)


def _whole(least: int, most: int, value: Any) -> int:
    bound = f"{least} or more" if most == MAX_SIZE else f"{least} to {most}"
    right = f"right would be a whole number, {bound}"
    number = _expect("a number", value, right)
    if number != number // 1:
        raise Wrong(value, "is not whole", right)
    if not least <= number <= most:
        raise Wrong(value, "is out of bounds", right)
    return int(number)


def _above_zero(value: Any) -> float:
    right = "right would be a number above 0, as in 1 or 0.5"
    if not 0 < _expect("a number", value, right) <= MAX_SIZE:
        raise Wrong(value, "is out of bounds", right)
    return float(value)


def _amount(
    parse: Callable[[str], float], most: float, right: str, value: Any, *, zero: bool = False
) -> float:
    """Read a number, or a text with a unit."""
    try:
        amount = parse(value) if isinstance(value, str) else _expect("a number", value, right)
    except ValueError as error:
        # The units show the value and what would be right in the same sentence.
        problem, _, better = str(error).removeprefix(f"{shown(value)} ").rpartition("; ")
        raise Wrong(value, problem, better if "right would be" in better else right) from None
    if not 0 <= amount <= most:
        raise Wrong(value, "is negative" if amount < 0 else "is too much to be meant", right)
    if not amount and not zero:
        raise Wrong(value, "is nothing at all", right)
    return type(most)(amount)


_duration = partial(_amount, parse_duration, float(MAX_DURATION), _DURATION)
_size = partial(_amount, parse_size, MAX_SIZE, _SIZE)


# Tables


def _drivers(value: Any) -> Drivers:
    count = partial(_whole, 0, MAX_DRIVERS)
    if not isinstance(value, dict):
        least = count(_expect("a number", value, _DRIVERS))
        return Drivers(least, least)
    stranger = "is no key of drivers, which has min and max"
    mistakes = [Wrong(NOTHING, stranger, _DRIVERS, (key,)) for key in value if key not in _BOUNDS]
    mistakes += [Wrong(value, f"has no {key}", _DRIVERS) for key in _BOUNDS if key not in value]
    _raise_all(mistakes)
    bounds = Drivers(**_each(value.items(), count))
    if bounds.min > bounds.max:
        raise Wrong(value, "has a min that is more than its max", _DRIVERS)
    return bounds


def _drivers_by_stage(value: Any) -> dict[str, Drivers]:
    right = "right would be { parse = 3, ocr = { min = 0, max = 2 } }"
    return _each(_expect("a table", value, right).items(), _drivers)


def _environment(value: Any) -> dict[str, str]:
    right = 'right would be { OMP_NUM_THREADS = 1, LANG = "C.UTF-8" }'
    variables = _expect("a table", value, right).items()
    return _each(((item[0], item) for item in variables), _variable)


def _variable(item: tuple[str, Any]) -> str:
    name, value = item
    if not name or "=" in name or "\0" in name:
        right = "right would be a name as in LANG"
        raise Wrong(NOTHING, "cannot be the name of a variable", right)
    right = 'right would be a text, as in "1"'
    if type(value) is int:
        # It may go without quotes.
        return str(value)
    if "\0" in _expect("a text", value, right):
        raise Wrong(value, "has a NUL in it, which no variable can", right)
    return str(value)


# Names of stages and queues


def stage_name(value: Any) -> str:
    """Read what a stage is called: a part of the ids of its drivers."""
    name: str = _expect("a text", value, _NAME)
    if len(name) > MAX_STAGE_NAME:
        raise Wrong(value, f"is {len(name)} characters long", _NAME)
    try:
        return check_driver_id(name)
    except BadArgument:
        raise Wrong(value, "cannot be part of a driver's id", _NAME) from None


def queue(value: Any) -> str:
    """Read the name of a queue: of a directory below the root."""
    name = _printable(_expect("a text", value, _QUEUE), _QUEUE)
    if "/" in name:
        raise Wrong(value, "is a path; all queues are next to one another in the root", _QUEUE)
    if name.startswith("."):
        raise Wrong(value, "starts with a dot", _QUEUE)
    if len(name.encode()) > _MAX_NAME:
        raise Wrong(value, f"is longer than the {_MAX_NAME} bytes of a name", _QUEUE)
    return name


def _several(reader: Reader, example: str, value: Any, least: int = 0) -> tuple[str, ...]:
    """Read one text, or so many or more in a list, each once."""
    if isinstance(value, str):
        return (reader(value),)
    _expect("a list", value, f'right would be "{example}", or a list of such')
    found = list(_each(enumerate(value), reader).values())
    if len(found) < least:
        raise Wrong(value, "has nothing in it", f'right would be as in "{example}"')
    for at, one in enumerate(found):
        if one in found[:at]:
            raise Wrong(one, "stands there twice", "right would be each once", (at,))
    return tuple(found)


# Brokers


def _local_address(value: Any) -> str:
    # Only a stage that has one needs to know more of networks.
    from queuedriver.doors.transports.addresses import is_loopback

    if not is_loopback(text := _address(value)):
        problem = "can be reached from other hosts, for which a broker needs keys"
        right = f"{_ADDRESS}; else start it by hand: queuedriver broker --curve DIR"
        raise Wrong(value, problem, right)
    return text


def _address(value: Any) -> str:
    from queuedriver.doors.transports.addresses import check_endpoint

    try:
        return check_endpoint(_expect("a text", value, _ADDRESS))
    except BadArgument:
        raise Wrong(value, "is no address", _ADDRESS) from None


# What is done to documents


def _call(value: Any) -> str:
    if ":" in str(value):
        return _reference(value, _CALL)
    name: str = _expect("a text", value, _CALL)
    if not name.strip() or not name.isprintable():
        raise Wrong(value, "names nothing", _CALL)
    return name


def _preload(value: Any) -> bool | str:
    return value if isinstance(value, bool) else _reference(value, _FUNCTION)


def _reference(value: Any, right: str) -> str:
    module, _, attributes = _expect("a text", value, right).partition(":")
    if module.endswith(".py"):
        meant = module.removesuffix(".py").strip("./").replace("/", ".")
        right = f'right would be the module, "{meant}:{attributes}"'
        raise Wrong(value, "names a file", right)
    if not all(part.isidentifier() for part in (*module.split("."), *attributes.split("."))):
        raise Wrong(value, "names no function", right)
    return str(value)


def _program(value: Any) -> tuple[str, ...]:
    """Read a program and its words. A text is split as a shell would, and not run by one."""
    if isinstance(value, list):
        _each(enumerate(value), _word)
    else:
        _expect("a text", value, _WORDS)
    from queuedriver.processors.program import split_command

    try:
        return tuple(split_command(value))
    except ConfigError as error:
        _object(value, error)


def _word(value: Any) -> None:
    _expect("a text", value, f'right would be a text, as in "{value}"')


def _command(value: Any) -> tuple[str, ...]:
    """Read a program and its words, with places for each document's own."""
    from queuedriver.processors.command import Template

    words = _program(value)
    try:
        Template(words)
    except ConfigError as error:
        _object(value, error)
    return words


def _hook(value: Any) -> tuple[str, ...]:
    """Read a program to run for each event."""
    words = _program(value)
    for field in (field for word in words for field in _FIELD.findall(word)):
        if field not in EVENT_FIELDS:
            known = ", ".join(f"{{{one}}}" for one in EVENT_FIELDS)
            raise Wrong(value, f"has {{{field}}}, which is not known", f"known are {known}")
    return words


def _metrics_file(value: Any) -> str:
    """Read where node_exporter looks, which heeds no other files."""
    right = 'right would be as in "/var/lib/node_exporter/serif.prom"'
    path = _printable(_expect("a text", value, right), right)
    if not (path.startswith("/") and path.endswith(".prom")):
        raise Wrong(value, "is no absolute path that ends in .prom", right)
    return path


def _publish(value: Any) -> str:
    try:
        return check_publish(_expect("a text", value, _PUBLISH))
    except ConfigError as error:
        _object(value, error, _PUBLISH)


def _object(value: Any, error: ConfigError, right: str = _WORDS) -> NoReturn:
    """Raise what another reader of the value, who names it as he got it, has against it."""
    text = str(error).replace(f"the command {value!r}", "it")
    problem, _, better = text.removeprefix(f"--publish {value!r}").lstrip(": ").partition("; ")
    raise Wrong(value, f"cannot work: {problem}", better or right) from None


# Slurm


def _of_slurm(example: str, value: Any) -> str:
    """Read what stands in a script for sbatch as one word."""
    right = f'right would be as in "{example}"'
    text = _printable(_expect("a text", value, right), right)
    if set(text) & set(" \"'\\"):
        raise Wrong(value, "is more than one word", right)
    return text


def _further(value: Any) -> tuple[str, ...]:
    """Read further words for sbatch."""
    return tuple(_each(enumerate(_expect("a list", value, _FURTHER)), _further_word).values())


def _further_word(value: Any) -> str:
    word: str = _expect("a text", value, _FURTHER)
    # -a1-9 is -a.
    flag = word.partition("=")[0] if word.startswith("--") else word[:2]
    if not word.startswith("-") or not word.isprintable():
        raise Wrong(value, "is no option of sbatch", _FURTHER)
    if flag in _OURS_IN_SCRIPTS:
        raise Wrong(value, "is in each script already", "leave it out")
    if flag.removeprefix("--") in SLURM_KEYS:
        raise Wrong(value, "has a key of its own", f"say {flag.removeprefix('--')}")
    return word


# What each script says by itself, or what would make another one of it.
_OURS_IN_SCRIPTS = {
    *("--array", "-a", "--job-name", "-J", "--comment", "--output", "-o", "--error", "-e"),
    *("--requeue", "--no-requeue", "--signal", "--open-mode", "--chdir", "-D", "--export"),
    *("--nodes", "-N", "--ntasks", "-n", "--cpus-per-task", "-c", "--mem", "--wrap", "-W"),
    *("--wait", "--parsable", "-p", "-t", "-A", "-q", "-C"),
}
SLURM_KEYS: dict[str, Reader] = {
    "nodes": _drivers,
    "partition": partial(_of_slurm, "gpu"),
    "time": partial(_optional, _duration),
    "account": partial(_of_slurm, "biology"),
    "qos": partial(_of_slurm, "normal"),
    "constraint": partial(_of_slurm, "avx2"),
    "gres": partial(_of_slurm, "gpu:1"),
    "extra": _further,
    "target": _duration,
    "idle": partial(_optional, _duration),
}

# The tables of the file


def _option(kind: Any, said: Said) -> Reader:
    """Return the reader of an option that `queuedriver run` has, too."""
    kinds = [one for one in get_args(kind) or (kind,) if one is not NoneType]
    reader: Reader = _switch if kinds == [bool] else partial(_choice, kinds)
    if said.unit in ("TIME", "SIZE"):
        amount = _duration if said.unit == "TIME" else _size
        reader = partial(amount, zero=said.least == 0)
    elif said.unit == "N":
        reader = partial(_whole, said.least or 0, said.most or MAX_SIZE)
    return partial(_optional, reader) if NoneType in get_args(kind) else reader


# An intake has a table of its own.
KINDS: tuple[Kind, ...] = tuple(kind for kind in get_args(Kind) if kind != "intake")
# What each stage says for itself. In a pipeline `publish` and `archive` are of one stage.
_OWN_KEYS: dict[str, Reader | Keys] = {
    "name": stage_name,
    "input": partial(_several, queue, "parsed", least=1),
    "output": partial(_several, queue, "parsed"),
    "call": _call,
    "command": _command,
    "server": _program,
    "broker": partial(_choice, [*PROTOCOLS]),
    "listen": partial(_several, _local_address, "tcp://127.0.0.1:6714"),
    "worker": partial(_choice, [one for one in PROTOCOLS if one != "fuq"]),
    "connect": _address,
    "preload": _preload,
    "memory_per_driver": partial(_optional, partial(_size, zero=True)),
    "publish": _publish,
    "archive": partial(_optional, partial(_text, "archive/parsed")),
    "slurm": {**SLURM_KEYS, "per": partial(_choice, ("node", "driver"))},
}
# What [pipeline] may say, too, for all stages that do not.
SHARED_KEYS: dict[str, Reader] = {
    "drivers": _drivers,
    "memory": partial(_optional, _size),
    "cpus": _above_zero,
    "env": _environment,
    "timeout": partial(_optional, _duration, also=("auto",)),
    "startup_timeout": _duration,
    "durable": _switch,
    "max_unhealthy": partial(_whole, 1, MAX_SIZE),
    "trial_every": partial(_duration, zero=True),
    "log_size": _size,
    "log_keep": partial(_whole, 0, 1000),
    **{
        name: _option(kind, said)
        for name, (kind, said) in rows(StageOptions).items()
        if name not in _OWN_KEYS
    },
}
STAGE_KEYS = {**_OWN_KEYS, **SHARED_KEYS}
# What an intake says of texts, as in the file.
_INTAKE_TEXTS = {"docid": "{path}", "done": "{name}.done", "manifest": "SHA256SUMS"}


def _intake_text(name: str, value: Any) -> str:
    """Read a text of an intake."""
    example = _INTAKE_TEXTS.get(name, name)
    text = _text(example, value)
    if why := OBJECTIONS[name](text) if name in OBJECTIONS else "":
        problem, _, right = why.partition("; ")
        raise Wrong(value, problem, right or f'right would be as in "{example}"')
    return text


def _intake_option(name: str, kind: Any, said: Said) -> Reader:
    """Return the reader of an option that `queuedriver intake` has, too."""
    if name == "settle":
        return lambda value: None if value == "auto" else _duration(value)
    if get_origin(kind) is tuple:
        return partial(_several, partial(_text, "*.pdf"), "*.pdf")
    if said.unit in ("TIME", "SIZE", "N") or kind is bool or get_origin(kind) is Literal:
        return _option(kind, said)
    reader = partial(_intake_text, name)
    return partial(_optional, reader) if NoneType in get_args(kind) else reader


INTAKE_KEYS: dict[str, Reader] = {
    "name": stage_name,
    "from": partial(_text, "drops"),
    "into": queue,
    **{
        name: _intake_option(name, kind, said) for name, (kind, said) in rows(IntakeOptions).items()
    },
}
PIPELINE_KEYS: dict[str, Reader] = {
    "name": partial(_text, "serif"),
    "root": partial(_text, "queues"),
    "on_event": _hook,
    "metrics": _metrics_file,
    "adopt": _switch,
    **SHARED_KEYS,
}
HOST_KEYS: dict[str, Reader] = {
    "memory": partial(_optional, _size),
    "cpus": partial(_optional, _above_zero),
    "rebalance_every": _duration,
}
# Each table of the file with its keys; of `hosts`, those of each host.
TABLES: dict[str, Keys] = {
    "pipeline": PIPELINE_KEYS,
    "stage": STAGE_KEYS,
    "host": HOST_KEYS,
    "hosts": {**HOST_KEYS, "drivers": _drivers_by_stage},
    "slurm": SLURM_KEYS,
    "intake": INTAKE_KEYS,
}


# What people call it elsewhere.
MEANT = {
    other: name
    for name, others in {
        "drivers": ("workers", "processes", "instances", "replicas", "concurrency"),
        "call": ("function", "python"),
        "command": ("cmd", "exec", "run"),
        "input": ("inputs", "source", "from"),
        "output": ("outputs", "to"),
        "env": ("environment",),
        "memory": ("mem", "ram"),
        "retries": ("attempts",),
    }.items()
    for other in others
}
