"""The pipeline's file, read again: whoever asks is answered, whatever comes of it."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.waiting import until
from watchdogd import check
from watchdogd.pipeline.read import study
from watchdogd.programs.io_helper import PipelineReader

FILE = '[pipeline]\nname = "p"\nroot = "queues"\n[[stage]]\nname = "one"\ncall = "json:loads"\n'


def unforeseen(*_: object, **__: object) -> list[str]:
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("at", ["the imports", "the file"])
def test_reading_that_fails_in_a_way_nobody_foresaw_is_answered_with_what_it_was(
    at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "p.toml"
    file.write_text(FILE)
    running, _ = study(str(file), "rose")
    # Something else runs, so what the file calls is imported first.
    stages = tuple(replace(one, work="json:dumps") for one in running.stages)
    if at == "the imports":
        monkeypatch.setattr(check, "check_imports", unforeseen)
    else:
        monkeypatch.setattr(check, "examine", unforeseen)
    reader = PipelineReader("rose", {})
    reader.ask(7, replace(running, stages=stages))
    busy = [reader.is_busy]
    read = until(reader.take)
    assert read is not None
    busy.append(reader.is_busy)
    assert (read.number, read.pipeline) == (7, None)
    assert f"{file} cannot be read: RuntimeError: can't start new thread" in read.error
    assert busy == [True, False]
    # The helper's standard error is its log.
    assert "in unforeseen" in capfd.readouterr().err
