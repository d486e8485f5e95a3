"""What a queue's drivers agreed on survives, and names outputs as it was meant."""

import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuedriver.errors import BadDocid, ConfigError
from queuedriver.format import names, settings
from queuedriver.format.settings import Publication, Settings, check_publish
from queuedriver.options import Options

if TYPE_CHECKING:
    from tests.conftest import Bench

TOKEN = "d-0605d3a1f2b0c05a17"
docids = st.text("ab.~ é7-", min_size=1, max_size=20).filter(
    lambda docid: names.objection(docid) is None
)


def test_settings_are_read_as_they_were_saved(bench: "Bench") -> None:
    private = bench.directory("private")
    assert settings.load(private, "in") is None
    saved = Settings(
        outputs=("../out", "../é"),
        publish="{stem}.txt.ready",
        existing="replace",
        retries=3,
        retry_delay=1.5,
        archive="../done",
        durable=True,
    )
    for one in (saved, Settings()):
        settings.save(private, one)
        assert settings.load(private, "in") == one
    assert bench.ls("private") == ["settings.json"]


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"retries": "two"}', b'{"existing": "burn"}', b"\xff"]
)
def test_damaged_settings_are_refused_with_what_to_do(bench: "Bench", data: bytes) -> None:
    bench.put("private/settings.json", data)
    with pytest.raises(ConfigError, match=r"settings\.json cannot be read .* delete it") as caught:
        settings.load(bench.directory("private"), "in")
    assert caught.value.exit_code == 78


@pytest.mark.parametrize(
    ("template", "docid", "final"),
    [
        ("{docid}.ready", "a.pdf", "a.pdf.ready"),
        ("{docid}.xml.ready", "a.pdf", "a.pdf.xml.ready"),
        ("{stem}.txt.ready", "a.pdf", "a.txt.ready"),
        ("{stem}.txt", "a.b.pdf", "a.b.txt"),
        ("{stem}", "a", "a"),
        ("{docid}.xml", "a{docid}", "a{docid}.xml"),
        ("{docid}{stem}", "a.b", "a.ba"),
    ],
)
def test_a_template_names_an_output(template: str, docid: str, final: str) -> None:
    assert check_publish(template) == template
    assert Publication(template).name(docid) == final
    assert Publication(template).is_queue is template.endswith(".ready")


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("out.xml", "put {docid} in it"),
        ("", "put {docid} in it"),
        ("{name}.xml", "no field {name}"),
        ("{}.xml", "no field {}"),
        ("{docid}/x", "'/'"),
        ("../{docid}", "'/'|dot"),
        (".{docid}", "dot"),
        ("{docid}.failed", "in a state"),
        ("{docid}.7.working", "in a state"),
        ("{docid}.ready.ready", "in a state"),
        ("{docid}.report.json", "report.json"),
        ("{docid}" + 160 * "x", "161 bytes"),
    ],
)
def test_a_template_that_cannot_name_outputs_is_refused(template: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        check_publish(template)


def test_an_output_whose_name_would_be_no_docid_is_refused() -> None:
    with pytest.raises(BadDocid):
        Publication("{docid}.xml.ready").name(158 * "x")
    with pytest.raises(BadDocid):
        Publication("{stem}").name("done.pdf")


@given(docids)
def test_what_is_published_into_a_queue_is_an_item_that_waits(docid: str) -> None:
    for template in ("{docid}.ready", "{docid}.xml.ready"):
        item = names.parse(Publication(template).name(docid))
        assert item is not None
        assert (item.state, item.attempt) == ("ready", 0)


@given(docids, st.sampled_from(["{docid}.ready", "{docid}.xml.ready", "{docid}.xml"]))
def test_second_names_are_of_the_same_kind_and_all_differ(docid: str, template: str) -> None:
    final = Publication(template).name(docid)
    tried = [name for _, name in zip(range(20), names.names_to_try(final, TOKEN), strict=False)]
    assert tried[0] == final
    assert len(set(tried)) >= 19
    for name in tried:
        assert name.endswith(".ready") is final.endswith(".ready")
        assert names.objection(name.removesuffix(".ready")) is None


# Options


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (Options(retries=-1), "--retries -1"),
        (Options(retries=99), "--retries 99"),
        (Options(batch=0), "--batch 0"),
        (Options(batch=2, retries=0), "--batch needs --retries"),
        (Options(timeout=0), "--timeout 0"),
        (Options(timeout=math.inf), "--timeout inf: at most 100 years"),
        (Options(hard_after=1e12), "--hard-after 1000000000000.0: at most 100 years"),
        (Options(max_output_items=0), "--max-output-items 0"),
        (Options(max_documents=-1), "--max-documents -1"),
        (Options(max_age=0.0), "--max-age"),
        (Options(max_memory=0), "--max-memory"),
        (Options(hard_after=-1), "--hard-after"),
        (Options(grace=-0.5), "--grace"),
        (Options(retry_delay=-1), "--retry-delay"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options: Options, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        options.check()


def test_the_most_retries_that_may_be_asked_for_have_names() -> None:
    options = Options(retries=98).check()
    assert names.parse(names.waiting_name("a", options.retries + 1)) is not None
