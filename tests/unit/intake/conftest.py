"""Where the intakes of these tests take from, and to."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.intakes import Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with contextlib.ExitStack() as at_end:
        yield Site(tmp_path, at_end)


@pytest.fixture(params=["one file system", "two file systems"])
def any_site(request: pytest.FixtureRequest, tmp_path: Path, elsewhere: Path) -> Iterator[Site]:
    with contextlib.ExitStack() as at_end:
        yield Site(tmp_path, at_end, elsewhere if request.param.startswith("two") else None)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A directory on another file system."""
    import shutil
    import tempfile

    shared = Path("/dev/shm")
    if not shared.is_dir() or shared.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("/dev/shm is no file system of its own here")
    path = Path(tempfile.mkdtemp(dir=shared))
    yield path
    shutil.rmtree(path)
