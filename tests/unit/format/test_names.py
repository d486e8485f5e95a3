"""A name says one thing, to whoever reads it; and what says nothing is nobody's business."""

from itertools import pairwise

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from queuedriver.errors import BadArgument, BadDocid
from queuedriver.format import names
from queuedriver.format.names import Item, parse
from tests.item_names import format_name

TOKEN = "host_1-3-0605d3a1f2b0c05a17"
SERIAL = "0605d3a1f2b0c05a17"

drivers = st.from_regex(r"\A[A-Za-z0-9_]+(-[A-Za-z0-9_]+)*\Z").filter(lambda one: len(one) <= 32)
serials = st.text("0123456789abcdef", min_size=18, max_size=18)
tokens = st.builds("{}-{}".format, drivers, serials) | st.from_regex(r"\A[0-9]{1,20}\Z")
exts = st.from_regex(r"\A[A-Za-z0-9]{1,12}\Z").filter(
    lambda ext: ext not in names.STATES and not ext.startswith("failed")
)
attempts = st.integers(0, names.MAX_RETRIES)

# What names are made of, so that what is put together by chance comes near to the grammar.
_PIECES = st.sampled_from(
    [
        *("a", "doc", ".", "..", "~", "-", " ", "\n", "\0", "/", "é", "\u202e", "\udc80", "😀"),
        *("ready", "failed", "failed2", "failed1", "failed99", "failed100", "working", "written"),
        *("writing", "later", "failed_twice", "done", "PAUSE", "report.json", "xml", "discarded"),
        *(TOKEN, SERIAL, "7", "007", "65535b00", "0", "ffffffffffffffff0", f"~{SERIAL}"),
    ]
)
near_names = st.lists(_PIECES, max_size=8).map("".join) | st.lists(_PIECES, max_size=8).map(
    ".".join
)
docids = (near_names | st.text(min_size=1, max_size=60)).filter(
    lambda docid: names.objection(docid) is None
)


@st.composite
def items(draw: st.DrawFn) -> Item:
    """An item as the project forms them."""
    docid = draw(docids)
    state = draw(st.sampled_from(names.STATES))
    match state:
        case names.FAILED:
            return Item(docid, state, draw(st.integers(1, names.MAX_RETRIES)))
        case names.WORKING | names.WRITTEN:
            return Item(docid, state, draw(attempts), draw(tokens))
        case names.LATER:
            return Item(docid, state, draw(attempts), due=draw(st.integers(0, 16**16 - 1)))
        case names.WRITING:
            return Item(docid, state, token=draw(tokens), ext=draw(st.just("") | exts))
    return Item(docid, state)


@st.composite
def damaged_names(draw: st.DrawFn) -> str:
    """A name with something put in, or taken out, somewhere."""
    name = format_name(draw(items()))
    start, end = sorted(draw(st.tuples(*2 * [st.integers(0, len(name))])))
    return name[:start] + draw(st.just("") | _PIECES) + name[draw(st.sampled_from([start, end])) :]


# The grammar


@pytest.mark.parametrize(
    ("name", "item"),
    [
        ("a.ready", Item("a", "ready")),
        ("a.failed", Item("a", "failed", 1)),
        ("a.failed2", Item("a", "failed", 2)),
        ("a.failed99", Item("a", "failed", 99)),
        (f"a.{TOKEN}.working", Item("a", "working", 0, TOKEN)),
        (f"a.failed.{TOKEN}.working", Item("a", "working", 1, TOKEN)),
        (f"a.failed10.{TOKEN}.written", Item("a", "written", 10, TOKEN)),
        (f"a.{TOKEN}.writing", Item("a", "writing", token=TOKEN)),
        (f"a.{TOKEN}.writing.xml", Item("a", "writing", token=TOKEN, ext="xml")),
        ("a.65535b00.later", Item("a", "later", due=0x65535B00)),
        ("a.failed.65535b00.later", Item("a", "later", 1, due=0x65535B00)),
        ("a.0.later", Item("a", "later", due=0)),
        # What the docid may have in it.
        ("a.b.c.ready", Item("a.b.c", "ready")),
        ("scan 1 (é).pdf.ready", Item("scan 1 (é).pdf", "ready")),
        ("a\nb.ready", Item("a\nb", "ready")),
        ("a~b.ready", Item("a~b", "ready")),
        ("a.7.ready", Item("a.7", "ready")),
        (f"a.{TOKEN}.ready", Item(f"a.{TOKEN}", "ready")),
        (f"a.7.{TOKEN}.working", Item("a.7", "working", 0, TOKEN)),
        (f"a.1f.{TOKEN}.working", Item("a.1f", "working", 0, TOKEN)),
        ("a.1f.1f.later", Item("a.1f", "later", due=0x1F)),
        ("a.failed1.ready", Item("a.failed1", "ready")),
        ("a.failed100.ready", Item("a.failed100", "ready")),
        ("discarded.ready", Item("discarded", "ready")),
        ("ready.ready", Item("ready", "ready")),
    ],
)
def test_each_row_of_the_table_is_read_and_formed(name: str, item: Item) -> None:
    assert parse(name) == item
    assert format_name(item) == name


@pytest.mark.parametrize(
    ("name", "item"),
    [
        ("doc1.failed_twice", Item("doc1", "failed_twice")),
        ("doc1.7.working", Item("doc1", "working", 0, "7")),
        ("doc1.7.writing.xml", Item("doc1", "writing", token="7", ext="xml")),
        ("doc1.failed", Item("doc1", "failed", 1)),
    ],
)
def test_what_the_original_program_left_is_understood(name: str, item: Item) -> None:
    assert parse(name) == item


@pytest.mark.parametrize(
    "name",
    [
        *("", "a", "a.xml", "scan.pdf", "a.Ready", "a.ready ", "a.ready\n", ".ready", ".a.ready"),
        *("done", "PAUSE", "QUIT", "done.ready", "PAUSE.ready", "QUIT.failed", "discarded"),
        *(".queuedriver", ".7.working", ".failed", ".failed_twice", "a.failed0", "a.failed1"),
        *("a.failed02", "a.failed100", "a.FAILED", "a.failed\u0662", "a.failed\n"),
        # No N, or what is none.
        *("a.working", "a.written", "a.writing", "a.writing.xml", "a.-1.working", "a. 7.working"),
        *("a.x-123.working", "a.host-0605d3a1f2b0c05a1.working", "a.\u0667.working"),
        *("a.-0605d3a1f2b0c05a17.working", "a.a--b-0605d3a1f2b0c05a17.working"),
        *("a.a-0605D3A1F2B0C05A17.working", "a.é-0605d3a1f2b0c05a17.working"),
        f"a.{TOKEN}.working\n",
        # A word of the table where an extension or a docid would be.
        *(f"a.{TOKEN}.writing.{word}" for word in ("ready", "failed", "failed2", "later")),
        *(f"a.{TOKEN}.writing.{word}" for word in ("working", "written", "writing")),
        f"a.{TOKEN}.writing.failed_twice",
        f"a.{TOKEN}.writing.",
        f"a.{TOKEN}.writing.x-y",
        f"a.{TOKEN}.writing.{13 * 'x'}",
        *("a.ready.ready", "a.failed.ready", "a.ready.failed", "a.failed.failed"),
        *(f"a.{TOKEN}.{state}.ready" for state in ("working", "written", "writing")),
        *("a.failed.failed_twice", "a.failed_twice.ready", "a.7.later.ready"),
        # One way only to write an instant.
        *("a.later", "a.FF.later", "a.00.later", "a.0ff.later", "a.0x1f.later", "a.-1.later"),
        *("a.11111111111111111.later", "a. 1.later"),
        # Not a docid.
        *("a.report.json", "a.report.json.ready", "a/b.ready", "../a.ready", "a\0.ready"),
        *("a\udc80.ready", 161 * "a" + ".ready", 81 * "é" + ".ready"),
    ],
)
def test_anything_else_is_foreign(name: str) -> None:
    assert parse(name) is None


@given(items())
def test_what_is_formed_is_read_back(item: Item) -> None:
    assert parse(format_name(item)) == item


@given(damaged_names() | near_names | st.text(max_size=60))
@example(f"a.failed.failed.{TOKEN}.working")
@example("a.failed2.5.7.working")
@example("a.5.writing.6.writing.xml")
def test_what_is_read_is_formed_again(name: str) -> None:
    item = parse(name)
    if item is not None:
        assert format_name(item) == name
        assert names.check_docid(item.docid) == item.docid


@given(docids, tokens, attempts, st.integers(0, 16**16 - 1), st.just("") | exts)
@example(f"a.{TOKEN}", "7", 0, 0, "")
@example("a.1f", "7", 1, 0x1F, "xml")
@example("failed", "7", 2, 0, "")
@example("a.failed1", "7", 3, 0, "ready1")
def test_no_docid_can_be_taken_for_a_state(
    docid: str, token: str, attempt: int, due: int, ext: str
) -> None:
    assert parse(names.waiting_name(docid, 0)) == Item(docid, "ready")
    if attempt:
        assert parse(names.waiting_name(docid, attempt)) == Item(docid, "failed", attempt)
    assert parse(names.working_name(docid, attempt, token)) == Item(
        docid, "working", attempt, token
    )
    assert parse(names.written_name(docid, attempt, token)) == Item(
        docid, "written", attempt, token
    )
    assert parse(names.writing_name(docid, token, ext)) == Item(
        docid, "writing", token=token, ext=ext
    )
    assert parse(names.later_name(docid, attempt, due)) == Item(docid, "later", attempt, due=due)
    # And by itself it is no item.
    assert parse(docid) is None


# Docids


@pytest.mark.parametrize(
    ("docid", "reason"),
    [
        ("", "empty"),
        (".hidden", "dot"),
        ("..", "dot"),
        ("a/b", "'/'"),
        ("a\0b", "NUL"),
        ("done", "control file"),
        ("QUIT", "control file"),
        ("a.ready", "in a state"),
        ("a.failed", "in a state"),
        ("a.failed7", "in a state"),
        ("a.failed_twice", "in a state"),
        ("a.7.working", "in a state"),
        (f"a.{TOKEN}.written", "in a state"),
        (f"a.{TOKEN}.writing.xml", "in a state"),
        ("a.65535b00.later", "in a state"),
        ("a.report.json", "report.json"),
        ("a\udcff", "UTF-8"),
        (161 * "x", "161 bytes"),
        (81 * "é", "162 bytes"),
    ],
)
def test_a_bad_docid_is_refused_with_its_reason(docid: str, reason: str) -> None:
    with pytest.raises(BadDocid, match=reason) as caught:
        names.check_docid(docid)
    assert caught.value.exit_code == 65
    assert caught.value.docid == docid


@pytest.mark.parametrize("docid", [160 * "x", 80 * "é", 40 * "😀", "a b", "a\nb", "ready", "a."])
def test_a_docid_of_160_bytes_is_accepted_whatever_its_characters(docid: str) -> None:
    assert names.check_docid(docid) == docid


@given(st.text(min_size=1, max_size=200))
def test_an_accepted_docid_is_at_most_160_bytes_but_for_a_serial(docid: str) -> None:
    assume(names.objection(docid) is None)
    base = docid.rpartition("~")[0] if len(docid.encode()) > 160 else docid
    assert len(base.encode()) <= 160


# Second docids


@given(docids, tokens, tokens)
def test_a_second_docid_may_be_a_docid_and_does_not_grow(docid: str, one: str, two: str) -> None:
    second = names.second_docid(docid, one)
    assert names.check_docid(second) == second
    assert names.second_docid(second, two) == names.second_docid(docid, two)


def test_docids_that_only_look_like_second_ones_stay_apart() -> None:
    # Two outputs of one claim, whose names are both taken.
    assert names.second_docid("page~1", TOKEN) != names.second_docid("page~2", TOKEN)


def test_the_second_docid_tells_the_serial() -> None:
    assert names.second_docid("a", TOKEN) == f"a~{SERIAL}"


def test_a_second_docid_keeps_its_extension_at_the_end() -> None:
    assert names.second_docid("n10.json.gz", TOKEN) == f"n10~{SERIAL}.json.gz"
    assert names.second_docid("5 May.2024 scan.pdf", TOKEN) == f"5 May.2024 scan~{SERIAL}.pdf"


@given(tokens, st.integers(0, 99), exts)
@example("9" * 20, 99, 12 * "x")
@example(f"{32 * 'x'}-{SERIAL}", 99, 12 * "x")
def test_every_name_fits_into_255_bytes(token: str, attempt: int, ext: str) -> None:
    for docid in (160 * "x", 80 * "é"):
        second = names.second_docid(docid, token)
        formed = [
            names.waiting_name(second, attempt),
            names.working_name(second, attempt, token),
            names.written_name(second, attempt, token),
            names.writing_name(second, token, ext),
            names.later_name(second, attempt, 16**16 - 1),
            f"{second}.failed_twice",
            f"{second}.{token}.json",
            second + names.REPORT,
        ]
        assert max(len(name.encode()) for name in formed) <= 255
        assert all(parse(name) is not None for name in formed[:5])


def test_a_bare_number_too_long_for_a_name_is_no_token() -> None:
    assert parse(f"a.{21 * '7'}.working") is None
    assert parse(f"a.{20 * '7'}.working") is not None
    assert names.objection(160 * "a" + "~" + 60 * "7") is not None


# Tokens and drivers


@pytest.mark.parametrize("driver", ["3", "a", "host_1-3", "A-b-C_d", 32 * "x", "0" * 32])
def test_a_driver_id_is_accepted_and_found_again_in_its_tokens(driver: str) -> None:
    assert names.check_driver_id(driver) == driver
    token = names.Mint(driver, "5a17").next(1_700_000_000_000_000)
    assert names.parse_token(token) == (driver, 1_700_000_000_000_000, "5a17")
    assert names.parse_token(token).claimed_at == 1_700_000_000.0
    assert parse(f"a.{token}.working") == Item("a", "working", 0, token)


@pytest.mark.parametrize(
    "driver", ["", "-", "a-", "-a", "a--b", "a.b", "é", "a b", "a\n", "a/b", 33 * "x", "\u0663"]
)
def test_a_bad_driver_id_is_refused(driver: str) -> None:
    with pytest.raises(BadArgument, match="driver id"):
        names.check_driver_id(driver)


def test_a_driver_id_of_more_than_32_bytes_makes_no_token() -> None:
    for long in (33 * "x", "x" + 16 * "-y"):
        assert parse(f"a.{long}-{SERIAL}.working") is None
        assert parse(f"a.{long}-{SERIAL}.writing") is None
        assert names.parse_token(f"{long}-{SERIAL}") == (f"{long}-{SERIAL}", 0, "")
    just = 32 * "x"
    assert names.parse_token(f"{just}-{SERIAL}").driver == just


def test_a_driver_id_that_looks_like_a_token_is_told_apart() -> None:
    token = names.Mint(f"x-{SERIAL}", "beef").next(1)
    assert names.parse_token(token) == (f"x-{SERIAL}", 1, "beef")


def test_a_bare_number_has_neither_serial_nor_salt() -> None:
    assert names.parse_token("7") == ("7", 0, "")


@given(st.lists(st.integers(0, 16**14 - 1000), min_size=1, max_size=50))
def test_no_token_is_minted_twice_and_each_is_later_though_the_clock_steps_back(
    clock: list[int],
) -> None:
    mint = names.Mint("3", "5a17")
    minted = [mint.next(now) for now in clock]
    serials = [names.parse_token(token).serial for token in minted]
    assert all(one < two for one, two in pairwise(serials))
    assert len(set(minted)) == len(minted)
    # Text sorts like time.
    assert minted == sorted(minted)


# Extensions


@pytest.mark.parametrize("ext", ["x", "xml", "7z", "XML", 12 * "x", "ready1", "failed1"])
def test_an_extension_is_letters_and_digits(ext: str) -> None:
    assert names.check_ext(ext) == ext


@pytest.mark.parametrize(
    "ext",
    ["", ".xml", "x-y", "x_y", 13 * "x", "é", "ready", "failed", "failed2", "writing", "xml\n"],
)
def test_a_bad_extension_is_refused(ext: str) -> None:
    with pytest.raises(BadArgument, match="extension"):
        names.check_ext(ext)


# What a person is told


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("scan.pdf", "'scan.pdf.ready'"),
        ("a.ready.ready", "in a state"),
        (161 * "a", "161 bytes"),
    ],
)
def test_a_foreign_name_is_explained(name: str, said: str) -> None:
    assert said in names.why_foreign(name)


def test_foreign_names_with_the_shape_of_an_item_are_told_from_others() -> None:
    assert names.looks_like_item("a.ready.ready")
    assert not names.looks_like_item("scan.pdf")


@given(
    st.from_regex(
        r"(a|[A-Za-z0-9_.-]|done|PAUSE|\.(ready|failed2?|later|x\.7|7\.working|writing|report\.json))+"
    )
)
def test_a_name_that_needs_no_closer_look_gets_the_same_docid_from_one(docid: str) -> None:
    name = f"{docid}.ready"
    if names.is_plain(name):
        assert names.parse(name) == Item(docid, "ready")
    assert names.is_plain("scan-1.pdf.ready")
