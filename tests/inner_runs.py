"""Runs of pytest inside a test, with hooks of the project's own conftest."""

import os
import subprocess
import sys
from pathlib import Path


def run(where: Path, conftest: str, tests: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run tests, given as text, in a process of their own; return how that ended."""
    (where / "conftest.py").write_text(conftest)
    (where / "test_some.py").write_text(tests)
    # What whoever runs the project's own tests asks of pytest is for those.
    environ = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words, where],
        cwd=where,
        env={**environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
