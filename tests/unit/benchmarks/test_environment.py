"""The benchmarks run in an environment of their own, which has less than that of the tests."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[3]
# As if these were not installed.
WITHOUT = """
import sys
for name in {names}:
    sys.modules[name] = None
import benchmarks.__main__
"""


def named(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w-]", one)[0].replace("_", "-").lower() for one in requirements}


def test_no_workload_needs_what_the_environment_of_the_benchmarks_lacks() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    installs = re.findall(r"(?m)^install_project ?(\w*)$", (ROOT / "benchmarks/run").read_text())
    peers = [
        line
        for line in (ROOT / "benchmarks/requirements.txt").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    there = named(peers).union(*(named(extras[extra]) for extra in installs if extra))
    lacking = {one for extra in extras.values() for one in named(extra)} - there
    names = [
        name
        for name, distributions in packages_distributions().items()
        if lacking & named(distributions)
    ]
    assert "sphinx" in names
    script = WITHOUT.format(names=names)
    argv = [sys.executable, "-c", script]
    ran = subprocess.run(argv, check=False, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
