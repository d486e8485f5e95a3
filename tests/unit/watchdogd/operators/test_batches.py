"""What an operator puts back is settled when it is listed, and told of to its last document."""

import os
import time
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest

from queuedriver import Document, Driver, Options
from queuedriver.errors import NotFound, QueueClosed
from queuedriver.format import names
from queuedriver.operating.queue import Queue
from tests.cli.queues import drive, submit
from tests.waiting import contents
from watchdogd.operators import actions, batches, causes
from watchdogd.operators.batches import Batch, Fate, Member, Seen, fate_of
from watchdogd.operators.causes import Case
from watchdogd.operators.hosts import Chosen, Hosts
from watchdogd.pipeline.model import Pipeline, Stage

STAGE = Stage(name="parse", inputs=("input",), outputs=("end",), kind="call", work="a:b")


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """One whose only stage has discarded `bad1`, `bad2` and `bad3`."""
    submit(tmp_path / "input", "bad1", "bad2", "bad3")
    drive(tmp_path / "input", tmp_path / "end", retries=0, archive=str(tmp_path / "archive"))
    return Pipeline(
        name="yard", file=str(tmp_path / "pipeline.toml"), root=str(tmp_path), stages=(STAGE,)
    )


def listed(pipeline: Pipeline) -> Batch:
    return batches.of_cases(causes.survey(pipeline).cases, "anna", "all of parse", time.time())


def put_back(pipeline: Pipeline, batch: Batch) -> dict[str, str]:
    """Put the documents of a batch back; return what came of each."""
    chosen = Chosen(pipeline, Hosts(), pipeline.file, "")
    return {one.docid: one.came for _, one in actions.put_back(chosen, batch).results}


def told(pipeline: Pipeline, batch: Batch) -> dict[str, Fate]:
    return {one.docid: fate for one, fate in batches.outcome(pipeline, batch).fates}


def waiting(pipeline: Pipeline) -> set[str]:
    names = os.listdir(os.path.join(pipeline.root, "input"))
    return {name for name in names if name.endswith(".ready")}


def test_a_report_that_arrives_while_one_confirms_is_not_retried(pipeline: Pipeline) -> None:
    """Neither one of another docid, nor one of a docid that was listed."""
    root = Path(pipeline.root)
    batch = listed(pipeline)
    # Meanwhile another operator retries one, which fails anew, and a new one arrives.
    first = next(one for one in causes.survey(pipeline).cases if one.docid == "bad1")
    put_back(pipeline, batches.of_cases([first], "ben", "bad1", time.time()))
    submit(root / "input", "bad4")
    drive(root / "input", root / "end", retries=0)
    assert put_back(pipeline, batch) == {"bad1": "refused", "bad2": "done", "bad3": "done"}
    assert waiting(pipeline) == {"bad2.ready", "bad3.ready"}
    with Queue.open(root / "input") as queue:
        assert queue.discarded() == ["bad1", "bad4"]


def test_another_document_of_a_listed_name_stays_where_it_is(pipeline: Pipeline) -> None:
    """Two discarded under one docid have two names, and a batch means one of them."""
    root = Path(pipeline.root)
    batch = listed(pipeline)
    submit(root / "input", "bad1")
    drive(root / "input", root / "end", retries=0)
    with Queue.open(root / "input") as queue:
        (second,) = {name for name in queue.discarded() if "~" in name}
    put_back(pipeline, batch)
    assert waiting(pipeline) == {"bad1.ready", "bad2.ready", "bad3.ready"}
    with Queue.open(root / "input") as queue:
        assert queue.discarded() == [second]


def test_every_document_of_a_batch_is_told_once(pipeline: Pipeline) -> None:
    root = Path(pipeline.root)
    batch = listed(pipeline)
    assert set(told(pipeline, batch).values()) == {"not put back"}
    put_back(pipeline, batch)
    assert set(told(pipeline, batch).values()) == {"waiting"}
    # What was wrong is mended for one of them, another fails as before, and one is not tried yet.
    for docid in ("bad2", "bad3"):
        os.rename(root / f"input/{docid}.ready", root / docid)
    options = Options(drain=True)
    Driver(root / "input", Document.read, root / "end", id="mended", options=options).run()
    os.rename(root / "bad2", root / "input/bad2.ready")
    drive(root / "input", root / "end", retries=0)
    os.rename(root / "bad3", root / "input/bad3.ready")
    outcome = batches.outcome(pipeline, batch)
    assert dict(Counter(fate for _, fate in outcome.fates)) == {
        "through": 1,
        "failed again": 1,
        "waiting": 1,
    }
    assert outcome.words == "1 through, 1 failed again, 1 waiting"
    assert sum(outcome.counts.values()) == len(batch.documents)
    assert told(pipeline, batch) == {"bad1": "through", "bad2": "failed again", "bad3": "waiting"}


@pytest.mark.parametrize(
    ("seen", "fate"),
    [
        (Seen(), "not known"),
        (Seen(in_queue=True), "waiting"),
        (Seen(through_at=20.0), "through"),
        # Resubmitted since under the docid of one that is through.
        (Seen(in_queue=True, through_at=20.0), "through"),
        (Seen(in_queue=True, through_at=5.0), "waiting"),
        # By the clock of a host that is behind: it is not where it was, and went through since.
        (Seen(through_at=7.0), "through"),
        (Seen(through_at=5.0), "not known"),
        # Its driver is at a long document, and has not noted yet what it did before.
        (Seen(has_results=True), "through"),
        (Seen(discarded=Case("parse", "q", "d", 6.0, "", "", "", "1-a")), "not put back"),
        (Seen(discarded=Case("parse", "q", "d", 11.0, "", "", "", "1-a")), "failed again"),
        (Seen(discarded=Case("parse", "q", "d", 11.0, "", "", "", "1-b")), "failed otherwise"),
        (
            Seen(in_queue=True, discarded=Case("parse", "q", "d", 6.0, "", "", "", "1-a")),
            "not put back",
        ),
    ],
)
def test_what_became_of_a_document_follows_from_where_it_is(seen: Seen, fate: Fate) -> None:
    assert fate_of(Member("q", "d", 6.0, "1-a"), 10.0, seen) == fate


def test_every_fate_is_told_and_what_nobody_met_only_where_it_matters() -> None:
    members = [Member("q", str(number)) for number in range(len(get_args(Fate)))]
    whole = batches.Outcome(tuple(zip(members, get_args(Fate), strict=True)))
    assert whole.words == (
        "1 through, 1 failed again, 1 waiting, 1 failed otherwise, 1 not put back, 1 not known"
    )
    assert batches.Outcome(()).words == "0 through, 0 failed again, 0 waiting"


def test_a_batch_is_kept_as_it_was_listed(pipeline: Pipeline) -> None:
    batch = listed(pipeline)
    with pytest.raises(NotFound, match="no batch"):
        batches.read(pipeline.root, batch.id)
    # A look makes nothing.
    assert list(batches.latest(pipeline.root, 9)) == []
    assert not os.path.exists(os.path.join(pipeline.root, ".watchdogd"))
    put_back(pipeline, batch)
    assert batches.read(pipeline.root, batch.id) == batch
    assert list(batches.latest(pipeline.root, 9)) == [batch]
    for name in ("../hosts/rose", "", "x"):
        with pytest.raises(NotFound):
            batches.read(pipeline.root, name)


def test_a_batch_that_names_no_queue_of_the_pipeline_looks_nowhere(pipeline: Pipeline) -> None:
    members = (Member("../elsewhere", "d", 1.0, "1-a"), Member("end", "d", 1.0, "1-a"))
    batch = Batch(id="x", kind="retry", at=0.0, who="", words="", documents=members)
    outcome = batches.outcome(pipeline, batch)
    assert [fate for _, fate in outcome.fates] == ["not known"] * 2


# Replay


@pytest.fixture
def archived(pipeline: Pipeline) -> Pipeline:
    """One whose stage has archived `a` and `b`."""
    root = Path(pipeline.root)
    submit(root / "input", "a", "b")
    drive(root / "input", root / "end", retries=0, archive=str(root / "archive"))
    assert set(contents(root / "archive")) == {"a", "b"}
    return pipeline


def replay(pipeline: Pipeline, *docids: str) -> tuple[Batch, dict[str, str]]:
    batch = batches.of_archived(STAGE, docids, "anna", "again", time.time())
    return batch, put_back(pipeline, batch)


def test_what_went_through_is_sent_through_once_more_under_its_name(archived: Pipeline) -> None:
    root = Path(archived.root)
    before = contents(root / "archive")
    for name in contents(root / "end"):
        os.unlink(root / "end" / name)
    batch, came = replay(archived, "a", "b")
    assert came == {"a": "done", "b": "done"}
    assert waiting(archived) == {"a.ready", "b.ready"}
    # The archive keeps what it has, before and after.
    assert contents(root / "archive") == before
    assert told(archived, batch) == {"a": "waiting", "b": "waiting"}
    drive(root / "input", root / "end", retries=0, archive=str(root / "archive"))
    assert contents(root / "archive") == before
    assert set(contents(root / "end")) == {"a.ready", "b.ready"}
    assert batches.outcome(archived, batch).words == "2 through, 0 failed again, 0 waiting"


def test_what_waits_already_or_was_never_archived_is_not_replayed(archived: Pipeline) -> None:
    submit(Path(archived.root) / "input", "b")
    _, came = replay(archived, "a", "b", "c", "../a")
    assert came == {"a": "done", "b": "refused", "c": "missing", "../a": "missing"}


def test_an_archive_without_hard_links_is_copied_from(
    archived: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refused)
        _, came = replay(archived, "a")
    assert came == {"a": "done"}
    root = Path(archived.root)
    assert (root / "input/a.ready").read_bytes() == (root / "archive/a").read_bytes()


def test_nothing_is_replayed_into_a_queue_that_is_closed(archived: Pipeline) -> None:
    with Queue.open(os.path.join(archived.root, "input")) as queue:
        queue.set_control(names.DONE, wanted=True)
    with pytest.raises(QueueClosed):
        replay(archived, "a")


def test_a_queue_without_an_archive_says_what_to_do(pipeline: Pipeline, tmp_path: Path) -> None:
    submit(tmp_path / "other", "a")
    drive(tmp_path / "other", tmp_path / "others")
    with Queue.open(tmp_path / "other") as queue, pytest.raises(NotFound, match="archive = "):
        batches.archive_of(queue)
