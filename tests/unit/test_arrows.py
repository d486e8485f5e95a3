"""Arrows point down: command line → loops → queue, processors, liveness → what is pure → errors."""

import ast
import graphlib
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import queuedriver
import watchdogd

ROOT = Path(queuedriver.__file__).parent
WATCHDOG = Path(watchdogd.__file__).parent

# Facts in, decisions out: these touch nothing, and bring nothing along that does.
PURE = {
    "queuedriver.errors",
    "queuedriver.format.names",
    "queuedriver.driving.measurements",
    "queuedriver.driving.plan",
    "queuedriver.driving.lifetime",
    "queuedriver.claims.counts",
    "queuedriver.claims.outcomes",
    "queuedriver.format.units",
    "queuedriver.format.records",
    "queuedriver.options",
    "queuedriver.intake",
    "queuedriver.intake.options",
    "queuedriver.intake.rules",
    "queuedriver.processors.answers",
    "queuedriver.format.settings",
    "watchdogd.pipeline.model",
    "watchdogd.pipeline.problems",
    "watchdogd.balance",
    "watchdogd.operators",
    "watchdogd.operators.forecast",
    "watchdogd.programs",
    "watchdogd.queues",
    "watchdogd.policy",
    "watchdogd.sizes",
    "watchdogd.stage_words",
}
# A package's `__init__` is its map, and imports nothing.
MAPS = {
    f"queuedriver.{package}" for package in ("format", "disk", "claims", "driving", "operating")
}
PURE |= MAPS
# Of a protocol all is pure but its settings, what is at a terminal, runs programs or is a loop.
PROTOCOLS = ("pingpong", "roundrobin", "scale0", "fuq")
PURE |= {f"queuedriver.doors.{name}" for name in ("words", "table", "exchange")}
PURE |= {"queuedriver.doors.transports", "queuedriver.doors.transports.base"}
PURE |= {"queuedriver.jobs", "queuedriver.jobs.jobfile"}
PURE |= {
    f"queuedriver.doors.{protocol}.{path.stem}"
    for protocol in PROTOCOLS
    for path in (ROOT / "doors" / protocol).glob("*.py")
    if path.stem[0] != "_"
    and not path.stem.startswith("console")
    and path.stem not in ("settings", "runner")
}
# What a driver does, turn by turn.
LOOPS = {
    "queuedriver.driving.driver",
    "queuedriver.driving.loop",
    "queuedriver.driving.setup",
    "queuedriver.driving.backpressure",
}
# What the loops are made of.
PARTS = {
    "queuedriver.operating.queue",
    "queuedriver.disk.neighbours",
    "queuedriver.claims.picking",
    "queuedriver.claims.handoff",
    "queuedriver.claims.input_queue",
    "queuedriver.claims.recovery",
    "queuedriver.claims.document",
    "queuedriver.format.records",
    "queuedriver.format.settings",
    "queuedriver.driving.limits",
    "queuedriver.driving.signals",
    "queuedriver.claims.liveness",
    "queuedriver.driving.wake",
    "queuedriver.disk.mounts",
    "queuedriver.disk.journal",
    "queuedriver.claims.leftovers",
    "queuedriver.disk.runtime",
    "queuedriver.disk.filesystem",
}


def paths() -> dict[str, Path]:
    found = {}
    for path in sorted([*ROOT.rglob("*.py"), *WATCHDOG.rglob("*.py")]):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


PATHS = paths()


def imports(module: str) -> set[str]:
    """Which of our modules one imports when it runs, be it late; not what it has for its types."""
    found = set()
    for name in _imported(ast.parse(PATHS[module].read_text())):
        # `from package import module`, or a name in a module.
        found.add(name if name in PATHS else name.rpartition(".")[0])
    return {name for name in found if name.partition(".")[0] in ("queuedriver", "watchdogd")}


def _imported(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=otherwise):
            for statement in otherwise:
                yield from _imported(statement)
        case ast.Import():
            yield from (alias.name for alias in node.names)
        case ast.ImportFrom(module=str(module), level=0):
            yield from (f"{module}.{alias.name}" for alias in node.names)
        case _:
            for child in ast.iter_child_nodes(node):
                yield from _imported(child)


ARROWS = {module: imports(module) - {module} for module in PATHS}


def below(module: str) -> set[str]:
    """Everything that a module leads to."""
    seen: set[str] = set()
    ahead = {module}
    while ahead:
        one = ahead.pop()
        seen.add(one)
        ahead |= ARROWS.get(one, set()) - seen
    return seen - {module}


# A fresh interpreter, in which the package is but a place to find modules in.
_FRESH = """
import importlib, json, sys, types
for name, path in json.loads(sys.argv[1]).items():
    package = types.ModuleType(name)
    package.__path__ = [path]
    sys.modules[name] = package
before = set(sys.modules)
importlib.import_module(sys.argv[2])
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def comes_along(module: str) -> set[str]:
    packages = {
        "queuedriver": str(ROOT),
        "queuedriver.processors": str(ROOT / "processors"),
        "queuedriver.intake": str(ROOT / "intake"),
        "watchdogd.pipeline": str(WATCHDOG / "pipeline"),
        "queuedriver.doors": str(ROOT / "doors"),
        "queuedriver.doors.transports": str(ROOT / "doors" / "transports"),
        **{f"queuedriver.doors.{name}": str(ROOT / "doors" / name) for name in PROTOCOLS},
        "watchdogd": str(WATCHDOG),
    }
    ran = subprocess.run(
        [sys.executable, "-I", "-c", _FRESH, json.dumps(packages), module],
        capture_output=True,
        check=True,
    )
    return set(json.loads(ran.stdout))


@pytest.mark.slow
@pytest.mark.parametrize("module", sorted(PURE))
def test_what_is_pure_brings_along_what_is_pure(module: str) -> None:
    along = comes_along(module)
    ours = {name for name in along if name.startswith(("queuedriver", "watchdogd"))}
    assert ours <= PURE
    # Of what reaches out of the process, nothing.
    assert not along & {
        "socket",
        "ssl",
        "zmq",
        "subprocess",
        "tempfile",
        "ctypes",
        "shutil",
        "filelock",
        "psutil",
    }


def test_errors_lead_to_nothing() -> None:
    assert ARROWS["queuedriver.errors"] == set()


LEVELS = ("format", "disk", "claims", "driving", "operating", "check", "intake", "cli")


def level(module: str) -> int:
    """Return how high the package of a module of a driver is; -1 of others."""
    package = module.split(".")[1] if module.startswith("queuedriver.") else ""
    return LEVELS.index(package) if package in LEVELS else -1


@pytest.mark.parametrize("module", [name for name in PATHS if level(name) >= 0])
def test_no_package_leads_to_one_above_it(module: str) -> None:
    assert not {name for name in ARROWS[module] if level(name) > level(module)}


def test_no_module_leads_to_itself() -> None:
    # Raises, and says which, when some do.
    graphlib.TopologicalSorter(ARROWS).prepare()


def test_the_lists_above_are_of_modules_that_there_are() -> None:
    assert set(PATHS) >= PURE | LOOPS | PARTS


@pytest.mark.parametrize("module", sorted(PARTS))
def test_no_part_leads_to_a_loop_or_a_processor_or_the_command_line(module: str) -> None:
    under = below(module)
    assert not under & LOOPS
    assert not {name for name in under if name.startswith("queuedriver.cli")}
    # But for how to find a dead driver's children.
    processors = {name for name in under if name.startswith("queuedriver.processors.")}
    assert processors <= {"queuedriver.processors.base", "queuedriver.processors.children"}


@pytest.mark.parametrize(
    "module", [name for name in PATHS if name.startswith("queuedriver.processors")]
)
def test_no_processor_leads_to_the_driver_or_to_a_queue(module: str) -> None:
    under = below(module)
    assert not under & LOOPS
    assert not under & {
        "queuedriver.operating.queue",
        "queuedriver.claims.handoff",
        "queuedriver.claims.recovery",
        "queuedriver.claims.input_queue",
        "queuedriver.claims.picking",
        "queuedriver.disk.journal",
    }


@pytest.mark.parametrize("module", sorted(LOOPS))
def test_no_loop_leads_to_the_command_line(module: str) -> None:
    assert not {name for name in below(module) if name.startswith("queuedriver.cli")}


DOORS = [name for name in PATHS if name.startswith(("queuedriver.doors", "queuedriver.jobs"))]


@pytest.mark.parametrize("module", sorted(PARTS | LOOPS))
def test_nothing_of_a_driver_leads_to_the_doors(module: str) -> None:
    assert not below(module) & set(DOORS)


@pytest.mark.parametrize("module", DOORS)
def test_nothing_of_the_doors_leads_to_the_command_line(module: str) -> None:
    assert not {name for name in below(module) if name.startswith("queuedriver.cli")}


def test_nothing_but_the_command_line_leads_to_the_command_line() -> None:
    for module, arrows in ARROWS.items():
        if not module.startswith(
            ("queuedriver.cli", "queuedriver.__main__", "watchdogd.cli", "watchdogd.__main__")
        ):
            command_lines = ("queuedriver.cli", "watchdogd.cli")
            assert not {name for name in arrows if name.startswith(command_lines)}, module


def test_nothing_leads_to_the_watchdog() -> None:
    for module, arrows in ARROWS.items():
        if not module.startswith("watchdogd"):
            assert not {name for name in arrows if name.startswith("watchdogd")}, module


def test_everything_that_is_public_is_there() -> None:
    for name in queuedriver.__all__:
        assert getattr(queuedriver, name) is not None
    assert set(queuedriver.__all__) <= set(dir(queuedriver))
    with pytest.raises(AttributeError):
        _ = queuedriver.no_such_thing


# What only those need who serve a page.
OF_EXTRAS = ("jinja2", "waitress")


@pytest.mark.parametrize("module", [name for name in PATHS if "__main__" not in name])
def test_every_module_can_be_imported_and_says_what_it_is_for(module: str) -> None:
    try:
        assert importlib.import_module(module).__doc__
    except ModuleNotFoundError as error:
        if error.name not in OF_EXTRAS:
            raise
        pytest.skip(f"{error.name} is not installed")
