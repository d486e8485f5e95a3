"""What `top` draws and what its keys do, on a terminal that is only emulated."""

import errno
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
import pyte
import pytest

from queuedriver.claims.outcomes import cause_key
from queuedriver.cli.render import Paint, width
from queuedriver.errors import FileSystemTrouble, NotFound
from queuedriver.format.records import Failure
from tests.cli.pipelines import make_with_intake, report
from watchdogd.cli import screen
from watchdogd.cli.operators import top as live
from watchdogd.cli.operators.navigation import SETTLED, Place, State, Wish, arrange, keys_of, press
from watchdogd.cli.operators.panes import Detail, Seen, lines, rows_of, unseen
from watchdogd.cli.pipeline_argument import choose
from watchdogd.helper_messages import Controls
from watchdogd.operators import history
from watchdogd.operators.causes import Case, survey_of
from watchdogd.operators.history import trend
from watchdogd.operators.hosts import Chosen, Hosts, SeenHost
from watchdogd.operators.view import SeenDriver, SeenStage, View, look
from watchdogd.pipeline.model import Pipeline

AT = 2_000_000_000.0
NOTHING = Detail()
SMALL, LARGE = os.terminal_size((80, 24)), os.terminal_size((130, 40))


def stage(name: str, **fields: object) -> SeenStage:
    usual = {
        **{"inputs": (name,), "outputs": ("end",), "wanted": 4, "min": 1, "max": 8},
        **{"state": "running", "waiting": 1200, "working": 4, "failed": 1, "discarded": 3},
        **{"later": 0, "done": False, "drivers": 4, "scaled": None, "rate": 2.1},
        "outlook": {"kind": "clear", "seconds": 600.0},
        **{"service": 3.3, "memory": 14_100_000_000},
        **{"work": 900, "wait": 50, "block": 30, "overhead": 20},
    }
    return msgspec.convert({"name": name} | usual | fields, SeenStage)


def driver(name: str, **fields: object) -> SeenDriver:
    usual = {
        **{"id": f"rose-{name}", "stage": name.rpartition("-")[0], "host": "rose", "kept": True},
        **{"state": "busy", "pid": 4711, "document": f"scan-{name}.pdf", "since": AT - 12},
        **{"documents": 881, "failed": 3, "memory": 2_000_000_000},
        **{"work": 900, "wait": 50, "block": 30, "overhead": 20},
    }
    return msgspec.convert({"name": name} | usual | fields, SeenDriver)


def seen(
    stages: Sequence[SeenStage] = (),
    drivers: Sequence[SeenDriver] = (),
    detail: Detail = NOTHING,
) -> Seen:
    said = report(at=AT, started_at=AT - 3600, pid=99)
    pipeline = Pipeline(name="serif", file="/data/p.toml", root="/data/queues", stages=())
    stages = stages or [stage("values"), stage("parse"), stage("out", waiting=7, rate=0.0)]
    view = View(
        chosen=Chosen(pipeline, Hosts((SeenHost(said, "alive", here=True),)), "p.toml", ""),
        at=AT,
        controls=Controls(),
        stages=tuple(stages),
        drivers=tuple(drivers),
        results=(),
        items={},
    )
    rates = [None] * 4 + [float(number % 7) for number in range(20)]
    return Seen(view, {"parse": rates}, detail)


class Sitting:
    """Somebody in front of a screen, who presses keys at a given time."""

    def __init__(self, what: Seen) -> None:
        self.seen = what
        self.now = 100.0
        self.state = State()
        self.arrange()

    def arrange(self) -> None:
        rows, hidden = rows_of(self.seen, self.state.here), unseen(self.seen, self.state, SMALL)
        self.state = arrange(self.state, rows, hidden, self.now)

    def look(self, what: Seen) -> None:
        self.seen = what
        self.arrange()

    def press(self, *keys: str) -> State:
        for key in keys:
            self.state = press(self.state, key, self.now)
            self.arrange()
        return self.state

    def draw(self, size: os.terminal_size = SMALL, paint: Paint = Paint()) -> list[str]:  # noqa: B008 - it cannot be changed
        """What a terminal of this size shows of it."""
        drawn = lines(self.seen, self.state, size, paint)
        assert len(drawn) == size.lines
        emulated = pyte.Screen(size.columns, size.lines)
        pyte.Stream(emulated).feed("\r\n".join(drawn))
        if not paint.on:
            # Nothing was wrapped, or went beyond the edge.
            assert [line.rstrip() for line in emulated.display] == [line.rstrip() for line in drawn]
        return [line.rstrip() for line in emulated.display]


PARSE = [driver("parse-1"), driver("parse-2", state="crash-looped"), driver("parse-3", pid=7)]


# Screens


def test_pipeline_in_80_columns() -> None:
    drawn = Sitting(seen()).draw()
    assert drawn[:8] == [
        "serif  /data/p.toml, in /data/queues",
        "watchdog on rose: running for 1 h, process 99",
        "",
        "  STAGE   STATE    WAITING  DISCARDED  DRIVERS   RATE  OUTLOOK          TREND",
        "> values  running    1,200          3      4/4  2.1/s  clear in 10 min",
        "  parse   running    1,200          3      4/4  2.1/s  clear in 10 min  ▇█▁▂▃▅▆▇",
        "  out     running        7          3      4/4         clear in 10 min",
        "",
    ]
    assert drawn[-1] == (
        "1/3  ? keys  q quit  Enter in  Esc back  s sort  / find  ! amiss  space hold"
    )


def test_pipeline_in_130_columns() -> None:
    titles, *rows = Sitting(seen()).draw(LARGE)[3:7]
    assert titles == (
        "  STAGE   STATE    WAITING  WORKING  FAILED  DISCARDED  DRIVERS   RATE   TIME   MEMORY"
        "  OUTLOOK          TREND"
    )
    assert rows == [
        "> values  running    1,200        4       1          3      4/4  2.1/s  3.3 s  14.1 GB"
        "  clear in 10 min",
        "  parse   running    1,200        4       1          3      4/4  2.1/s  3.3 s  14.1 GB"
        "  clear in 10 min      ▁▂▃▅▆▇█▁▂▃▅▆▇█▁▂▃▅▆▇",
        "  out     running        7        4       1          3      4/4         3.3 s  14.1 GB"
        "  clear in 10 min",
    ]


def test_an_intake_is_a_row_with_what_waits_and_below_it_what_for(tmp_path: Path) -> None:
    view = look(choose(str(make_with_intake(tmp_path))))
    sitting = Sitting(Seen(view))
    row = next(line for line in sitting.draw(LARGE) if "scanner" in line)
    assert row.split()[:2] == ["scanner", "3"]
    sitting.press("end", "enter")
    drawn = sitting.draw(LARGE)
    assert drawn[0].startswith("serif > scanner > drivers")
    assert any("3 files wait, as a.pdf: empty for 4 s" in line for line in drawn)


def test_drivers_of_a_stage_in_80_columns() -> None:
    sitting = Sitting(seen(drivers=PARSE))
    sitting.press("down", "enter", "down")
    drawn = sitting.draw()
    assert re.fullmatch(r"serif > parse > drivers  \S+ \S+", drawn[0])
    assert drawn[1:7] == [
        "",
        "  DRIVER   STATE         SINCE  AT HAND           DONE  FAILED  DISCARDED",
        "  parse-1  busy           12 s  scan-parse-1.pdf   881       3",
        "> parse-2  crash-looped   12 s  scan-parse-2.pdf   881       3",
        "  parse-3  busy           12 s  scan-parse-3.pdf   881       3",
        "",
    ]


def test_nothing_is_read_or_done_below_a_root_that_does_not_answer(tmp_path: Path) -> None:
    chosen = choose(str(make_with_intake(tmp_path)))._replace(hung=True)
    # Of the log of a driver elsewhere there is a copy below the root.
    places = [Place(kind, "a", "parse") for kind in ("trace", "causes", "documents")]
    for place in (*places, Place("driver", "parse-1@rose")):
        with pytest.raises(FileSystemTrouble, match="does not answer"):
            live._detail(chosen, place, ())
    with pytest.raises(FileSystemTrouble, match="does not answer"):
        live._done(chosen, Seen(look(chosen)), Wish("pause", "parse"))
    assert not list(tmp_path.rglob("PAUSE"))


@pytest.mark.parametrize("act", ["pause", "resume", "scale", "restart"])
def test_nothing_is_done_to_a_stage_that_is_gone_since_somebody_was_asked_about_it(
    act: Literal["pause", "resume", "scale", "restart"], tmp_path: Path
) -> None:
    chosen = choose(str(make_with_intake(tmp_path)))
    before = sorted(Path(chosen.pipeline.root).rglob("*"))
    with pytest.raises(NotFound, match="no stage 'gone' in this pipeline"):
        live._done(chosen, Seen(look(chosen)), Wish(act, "gone", more=1))
    assert sorted(Path(chosen.pipeline.root).rglob("*")) == before


def test_history_that_cannot_be_read_is_said_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = live._Live(str(make_with_intake(tmp_path)), [0, 0])

    def fail(_: View) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(history, "trends", fail)
    one._look()
    assert "Input/output error" in one._state.said


def test_one_driver_with_the_end_of_its_log_and_what_was_before() -> None:
    text = tuple(f"line {number}" for number in range(40))
    sitting = Sitting(seen(drivers=PARSE, detail=Detail(text)))
    sitting.press("down", "enter", "enter")
    drawn = sitting.draw()
    assert drawn[1:5] == [
        "busy for 12 s",
        "at hand: scan-parse-1.pdf",
        "process 4711, 2 GB, 881 documents, 3 failed, 0 discarded, 0 restarts",
        "",
    ]
    assert (drawn[5], drawn[-2]) == ("line 22", "line 39")
    sitting.press("up")
    assert sitting.draw()[-2] == "line 38"
    sitting.press("page-up", "home")
    assert sitting.draw()[5] == "line 0"
    sitting.press("end")
    assert sitting.draw()[-2] == "line 39"


def test_driver_that_rests_says_why_and_when_it_is_tried_again() -> None:
    resting = driver("parse-1", state="backoff", why="exit code 3", until=AT + 300)
    sitting = Sitting(seen(drivers=[resting]))
    sitting.press("down", "enter", "enter")
    assert sitting.draw()[1] == "backoff for 12 s: exit code 3; tried again in 5 min"


def test_the_way_of_a_document_is_read_from_its_beginning() -> None:
    text = tuple(f"stop {number}" for number in range(40))
    sitting = Sitting(seen(drivers=PARSE, detail=Detail(text)))
    sitting.press("down", "enter", "enter", "enter")
    assert sitting.state.here[:3] == ("trace", "scan-parse-1.pdf", "parse")
    assert sitting.draw()[2] == "stop 0"
    sitting.press("down")
    assert sitting.draw()[2] == "stop 1"
    sitting.press("end")
    assert sitting.draw()[-2] == "stop 39"


@pytest.mark.parametrize("columns", [1, 7, 20, 40, 66, 79, 80, 97, 130, 300])
@pytest.mark.parametrize("rows", [2, 5, 24])
def test_no_line_is_wrapped_and_the_last_row_of_a_screen_is_its_keys(
    columns: int, rows: int
) -> None:
    drivers = [driver(f"parse-{number}", why="it waits " * 9) for number in range(40)]
    sitting = Sitting(seen(drivers=drivers, detail=Detail(("x" * 500,) * 50)))
    size = os.terminal_size((columns, rows))
    for keys in (["?"], ["?"], ["down", "enter"], ["p"], ["escape", "/", "9"], ["enter", "enter"]):
        sitting.press(*keys)
        # `draw` asserts it.
        sitting.draw(size)


def test_titles_stay_and_the_row_that_is_selected_is_always_there() -> None:
    drivers = [driver(f"parse-{number}") for number in range(200)]
    sitting = Sitting(seen(drivers=drivers))
    sitting.press("down", "enter")
    for key, name in (("end", "parse-199"), ("page-up", "parse-189"), ("home", "parse-0")):
        sitting.press(key)
        drawn = sitting.draw()
        assert drawn[2].startswith("  DRIVER")
        (selected,) = [line for line in drawn if line.startswith("> ")]
        assert selected.split()[1] == name
        assert drawn[-1].startswith(f"{int(name[6:]) + 1}/200  ")


def test_names_that_are_wide_or_turn_the_writing_keep_their_columns() -> None:
    drivers = [
        driver("parse-1", document="漢字の文書" * 9),
        driver("parse-2", document="\u202eevil\u2066 \x1b[2J\x9b31m"),
        driver("parse-3", document="e\u0301" * 30),
    ]
    sitting = Sitting(seen(drivers=drivers))
    sitting.press("down", "enter")
    for size in (SMALL, LARGE):
        drawn = lines(sitting.seen, sitting.state, size, Paint())
        rows = drawn[3:6]
        assert max(map(width, drawn)) <= size.columns
        # What is after the name stands where it stands in the other rows.
        assert len({width(row[: row.index("  881")]) for row in rows}) == 1
        assert not set("".join(drawn)) & set("\u202e\u2066\x1b\x9b")


def test_shape_says_what_colour_says(monkeypatch: pytest.MonkeyPatch) -> None:
    sitting = Sitting(seen(drivers=PARSE))
    sitting.press("down", "enter", "down", "down")
    plain = lines(sitting.seen, sitting.state, SMALL, Paint())
    assert not any("\033" in line for line in plain)
    painted = lines(sitting.seen, sitting.state, SMALL, Paint(on=True))
    assert [re.sub(r"\033\[[0-9;]*m", "", line) for line in painted] == plain
    assert "\033[31;1mcrash-looped\033[0m" in painted[4]
    assert painted[5].startswith("\033[7m> parse-3")


@pytest.mark.parametrize(
    ("state", "colour"), [("tripped", "\033[31;1m"), ("paused", "\033[33;1m"), ("done", "")]
)
def test_what_is_said_of_a_stage_above_its_drivers_is_as_loud_as_its_word(
    state: str, colour: str
) -> None:
    sitting = Sitting(seen([stage("parse", state=state, why="why")]))
    sitting.press("down", "enter")
    above = lines(sitting.seen, sitting.state, SMALL, Paint(on=True))[1]
    assert above == (f"{colour}parse is {state}: why" + ("\033[0m" if colour else ""))


def test_more_to_say_than_there_is_room_for_leaves_room_for_rows() -> None:
    drivers = [driver(f"parse-{n}", state="crash-looped", why=f"why {n}") for n in range(40)]
    drawn = Sitting(seen(drivers=drivers)).draw()
    assert "and 30 more; watchdogd status says all" in drawn
    assert any(line.startswith("> values") for line in drawn)


@pytest.mark.parametrize(
    ("rates", "drawn"),
    [
        ([None, 0.0, 1.0, 2.0], " ▁▅█"),
        ([0.0, 0.0], "▁▁"),
        ([None], " "),
        ([], ""),
    ],
)
def test_trend_is_as_high_as_the_rate_and_a_gap_where_nobody_wrote(
    rates: list[float | None], drawn: str
) -> None:
    assert trend(rates) == drawn


# What it costs


def test_only_rows_that_are_seen_are_formatted_however_many_drivers_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    formatted: list[str] = []
    real = screen.driver_cells

    def cells(one: SeenDriver, view: View, *, several_hosts: bool) -> tuple[str, ...]:
        formatted.append(one.name)
        return real(one, view, several_hosts=several_hosts)

    monkeypatch.setattr(screen, "driver_cells", cells)
    sitting = Sitting(seen(drivers=[driver(f"parse-{number}") for number in range(1000)]))
    sitting.press("down", "enter")
    sitting.draw()
    assert len(formatted) == SMALL.lines - 4


def calls_of_a_frame(drivers: int) -> int:
    """How many calls of Python functions a look's rows and their screen take."""
    sitting = Sitting(seen(drivers=[driver(f"parse-{number}") for number in range(drivers)]))
    sitting.press("down", "enter")
    calls = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        sitting.arrange()
        lines(sitting.seen, sitting.state, LARGE, Paint(on=True))
    finally:
        sys.setprofile(None)
    return calls


def test_a_frame_with_200_drivers_costs_few_calls() -> None:
    """Some 10 of them take a microsecond: it is far below 5 ms."""
    frame = calls_of_a_frame(200)
    assert frame <= 12_000
    # What a driver more costs that is not seen.
    assert (calls_of_a_frame(400) - frame) / 200 <= 12


# Keys


def order(sitting: Sitting) -> list[str]:
    return [key.partition("@")[0] for key in sitting.state.here.order]


def test_the_selection_follows_its_row_and_falls_to_the_next_when_that_is_gone() -> None:
    sitting = Sitting(seen(drivers=PARSE))
    sitting.press("down", "enter", "down")
    assert sitting.state.here.selected == "parse-2@rose"
    sitting.look(seen(drivers=[driver("parse-0"), *PARSE]))
    assert sitting.state.here.selected == "parse-2@rose"
    sitting.now += SETTLED
    sitting.look(seen(drivers=[PARSE[0], PARSE[2]]))
    assert sitting.state.here.selected == "parse-3@rose"
    sitting.look(seen())
    assert sitting.state.here.selected == ""
    # Nothing is entered where nothing is selected.
    assert sitting.press("enter").here.kind == "stage"


def test_rows_are_sorted_by_each_column_and_the_other_way_round() -> None:
    drivers = [
        driver("parse-1", documents=5, memory=1),
        driver("parse-2", documents=9, memory=3, state="hung"),
        driver("parse-3", documents=7, memory=2),
    ]
    sitting = Sitting(seen(drivers=drivers))
    sitting.press("down", "enter", "s")
    assert (sitting.state.here.sort, order(sitting)[0]) == ("amiss", "parse-2")
    sitting.press("s", "s")
    assert sitting.state.here.sort == "done"
    assert order(sitting) == ["parse-2", "parse-3", "parse-1"]
    assert "by done" in sitting.draw()[-1]
    sitting.press("S")
    assert order(sitting) == ["parse-1", "parse-3", "parse-2"]
    sitting.press("s", "s", "s")
    assert (sitting.state.here.sort, order(sitting)) == ("", ["parse-1", "parse-2", "parse-3"])


def test_rows_stay_where_they_are_for_5_seconds_after_a_key() -> None:
    def busy(*documents: int) -> Seen:
        return seen(drivers=[driver(f"parse-{at}", documents=n) for at, n in enumerate(documents)])

    sitting = Sitting(busy(3, 2, 1))
    sitting.press("down", "enter", "s", "s", "s", "down")
    sitting.now += SETTLED - 0.1
    sitting.look(busy(3, 4, 5))
    assert order(sitting) == ["parse-0", "parse-1", "parse-2"]
    sitting.now += 0.2
    sitting.look(busy(3, 4, 5))
    assert order(sitting) == ["parse-2", "parse-1", "parse-0"]
    assert sitting.state.here.selected == "parse-1@rose"


def test_held_still_the_numbers_go_on_and_the_order_does_not() -> None:
    def busy(*documents: int) -> Seen:
        return seen(drivers=[driver(f"parse-{at}", documents=n) for at, n in enumerate(documents)])

    sitting = Sitting(busy(30, 20, 10))
    sitting.press("down", "enter", "s", "s", "s", " ")
    sitting.now += 100 * SETTLED
    # One is gone, and one is new.
    sitting.look(busy(30, 40, 50, 60))
    assert order(sitting) == ["parse-0", "parse-1", "parse-2", "parse-3"]
    assert "held still" in sitting.draw()[-1]
    assert " 50 " in sitting.draw()[5]
    sitting.press(" ")
    sitting.now += SETTLED
    sitting.arrange()
    assert order(sitting)[0] == "parse-3"


def test_only_what_is_amiss_and_only_rows_with_some_words() -> None:
    sitting = Sitting(seen(drivers=PARSE))
    sitting.press("down", "enter", "!")
    assert order(sitting) == ["parse-2"]
    assert "only what is amiss" in sitting.draw()[-1]
    # Esc drops what narrows the rows before it leads back.
    assert sitting.press("escape").here.kind == "stage"
    assert len(order(sitting)) == 3
    sitting.press("/", "-", "3", "x", "backspace")
    assert sitting.draw()[-1] == "only rows with: -3"
    assert order(sitting) == ["parse-3"]
    sitting.press("enter")
    assert "with '-3'" in sitting.draw()[-1]
    sitting.press("escape")
    assert len(order(sitting)) == 3
    sitting.press("escape", "escape", "escape")
    assert sitting.state.here.kind == "pipeline"


def test_enter_leads_from_a_stage_to_the_document_of_its_driver_and_esc_back() -> None:
    sitting = Sitting(seen(drivers=[driver("parse-1", document=""), *PARSE[1:]]))
    kinds = [sitting.press(key).here.kind for key in ("down", "enter", "enter", "enter")]
    # It has nothing at hand.
    assert kinds == ["pipeline", "stage", "driver", "driver"]
    assert sitting.press("escape", "down", "enter", "enter").here.name == "scan-parse-2.pdf"
    kinds = [sitting.press("escape").here.kind for _ in range(4)]
    assert kinds == ["driver", "stage", "pipeline", "pipeline"]


@pytest.mark.parametrize(
    ("keys", "wish", "words"),
    [
        (["p"], Wish("pause", "parse"), "pause parse?"),
        (["r"], Wish("resume", "parse"), "resume parse?"),
        (["R"], Wish("restart", "parse"), "restart parse on each host?"),
        (["+"], Wish("scale", "parse", more=1), "scale parse to 5 drivers on each host?"),
        (["+", "+", "-", "+"], Wish("scale", "parse", more=2), "scale parse to 6 drivers"),
        (["-"], Wish("scale", "parse", more=-1), "scale parse to 3 drivers on each host?"),
        (["enter", "R"], Wish("restart", "parse", "parse-1@rose"), "restart parse-1 on rose?"),
    ],
)
def test_what_changes_something_is_asked_back_and_done_for_a_yes(
    keys: list[str], wish: Wish, words: str
) -> None:
    sitting = Sitting(seen(drivers=PARSE))
    sitting.press("down", *keys)
    asked = sitting.draw(LARGE)[-1]
    assert asked.startswith(words)
    assert asked.endswith("? type yes:")
    assert sitting.press("y", "e").wish is None
    assert sitting.press("s", "enter").wish == wish
    assert sitting.state.asked is None


def test_stage_that_is_gone_while_somebody_is_asked_about_it_ends_nothing() -> None:
    sitting = Sitting(seen())
    sitting.press("down", "+")
    sitting.look(seen([stage("values")]))
    assert sitting.draw()[-1].startswith("scale parse to ")
    assert sitting.press("escape").asked is None


@pytest.mark.parametrize("answer", [["enter"], ["y", "enter"], ["escape"], ["n", "o", "enter"]])
def test_without_a_yes_nothing_is_changed(answer: list[str]) -> None:
    sitting = Sitting(seen())
    sitting.press("p", *answer)
    assert (sitting.state.wish, sitting.state.asked) == (None, None)
    assert sitting.draw()[-1] == "nothing was changed"
    # Keys mean what they mean again.
    assert sitting.press("q").over


def test_discarded_by_cause_and_a_group_tried_again() -> None:
    def case(docid: str, message: str) -> Case:
        failure = Failure(cause="exception", message=message)
        return Case("parse", "q", docid, AT - 60, "exception", cause_key(failure), message, message)

    survey = survey_of([case("a", "no text"), case("b", "no text"), case("c", "no title")], 3, 9)
    sitting = Sitting(seen(drivers=PARSE, detail=Detail(survey=survey)))
    sitting.press("down", "d")
    drawn = sitting.draw()
    assert drawn[1:6] == [
        "grouped over the latest 3 of 9",
        "",
        "  GROUP     STAGE  COUNT      FIRST       LAST  WHY",
        "> no text   parse      2  1 min ago  1 min ago  exception: no text  (as a)",
        "  no title  parse      1  1 min ago  1 min ago  exception: no title  (c)",
    ]
    sitting.press("t")
    assert sitting.draw()[-1] == ("have 2 documents tried again that failed by: no text? type yes:")
    assert sitting.press("y", "e", "s", "enter").wish == Wish("retry", "parse", "no text")
    sitting.press("enter")
    assert [line.split()[:2] for line in sitting.draw()[3:5]] == [[">", "a"], ["b", "1"]]
    assert sitting.press("down", "enter").here[:3] == ("trace", "b", "parse")


def test_a_key_that_means_nothing_here_does_nothing() -> None:
    sitting = Sitting(seen(drivers=PARSE))
    before = sitting.state
    for key in ("t", "k", "x", "f1", "ü"):
        assert sitting.press(key)._replace(settled_until=0.0) == before._replace(settled_until=0.0)


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"", ["gone"]),
        (b"q", ["q"]),
        (b"\x1b", ["escape"]),
        (b"\x1b[A\x1b[B\x1bOA", ["up", "down", "up"]),
        (b"\x1b[5~\x1b[6~\x1b[H\x1b[4~", ["page-up", "page-down", "home", "end"]),
        (b"\x1b[15~x", ["x"]),
        (b"\x1b[1;5Cy", ["y"]),
        (b"\x1b[", []),
        ("ü漢".encode(), ["ü", "漢"]),
        (b"\xff\xfe", []),
        (b"ab\r\n\x7f", ["a", "b", "enter", "enter", "backspace"]),
    ],
)
def test_keys_are_read_from_what_a_terminal_sends(data: bytes, keys: list[str]) -> None:
    assert keys_of(data) == keys


def test_help_names_each_key_and_the_next_key_leads_back() -> None:
    sitting = Sitting(seen())
    sitting.press("?")
    drawn = sitting.draw()
    assert not any("…" in line for line in drawn)
    for key in ("s, S", "/", "!", "space", "p, r", "R", "+, -", "d, t", "k", "q"):
        assert any(line.startswith(f"{key} ") for line in drawn)
    assert not sitting.press("x").help
