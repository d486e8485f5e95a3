"""Leads through the places of `top`, key by key. Pure: a state and a key in, a state out.

    pipeline ─Enter→ stage ─Enter→ driver ─Enter→ the way of its document
    pipeline, stage ─d→ what was discarded, by cause ─Enter→ documents of a group ─Enter→ its way

Esc leads back. What changes something is a wish, which is asked back in words and carried out by
whoever draws the screen, once somebody has typed `yes`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

Kind = Literal["pipeline", "stage", "driver", "trace", "causes", "documents"]
Act = Literal["pause", "resume", "restart", "scale", "retry", "stacks"]
# Places whose rows can be selected; the others are text that scrolls.
ROWS: frozenset[Kind] = frozenset({"pipeline", "stage", "causes", "documents"})
# What Enter leads to.
_INTO: dict[Kind, Kind] = {
    **{"pipeline": "stage", "stage": "driver", "driver": "trace"},
    **{"causes": "documents", "documents": "trace"},
}
# By what rows are sorted, one after the other; empty: as they come.
SORTS: dict[Kind, tuple[str, ...]] = {
    "pipeline": ("", "amiss", "waiting", "discarded", "rate"),
    "stage": ("", "amiss", "since", "done", "failed", "memory"),
    "causes": ("", "last", "stage"),
    "documents": ("", "docid"),
}
# Seconds after a key in which rows stay where they are.
SETTLED = 5.0
_PAGE = 10
_YES = "yes"
_ACTS: dict[str, Act] = {
    **{"p": "pause", "r": "resume", "R": "restart", "t": "retry"},
    **{"+": "scale", "-": "scale"},
}
_STEPS = {
    **{"up": -1, "page-up": -_PAGE, "home": -(10**9)},
    **{"down": 1, "page-down": _PAGE, "end": 10**9},
}


class Place(NamedTuple):
    """Something that is looked at, and what is selected there."""

    kind: Kind
    # Of a stage its name, of a driver its key, of a document its docid, of a group its key.
    name: str = ""
    # The stage that it is in; empty: all.
    stage: str = ""
    selected: str = ""
    # How many lines of a text are not shown: the first, or of a log the last.
    offset: int = 0
    sort: str = ""
    reverse: bool = False
    # The keys of the rows as they are shown.
    order: tuple[str, ...] = ()


class Wish(NamedTuple):
    """Something to be done."""

    act: Act
    stage: str = ""
    # A driver, or a group of what was discarded; empty: all of the stage.
    name: str = ""
    # Drivers more, or fewer.
    more: int = 0


class State(NamedTuple):
    """All that `top` knows of who looks."""

    places: tuple[Place, ...] = (Place("pipeline"),)
    filter: str = ""
    # Only what is amiss.
    amiss: bool = False
    # Rows stay where they are, for good or until an instant (on the monotonic clock).
    held: bool = False
    settled_until: float = 0.0
    # What is being typed after "/", and as the answer to a question; None: nothing.
    typing: str | None = None
    asked: Wish | None = None
    answer: str = ""
    # To be carried out now, and what came of the last one.
    wish: Wish | None = None
    said: str = ""
    help: bool = False
    over: bool = False

    @property
    def here(self) -> Place:
        return self.places[-1]

    @property
    def stage(self) -> str:
        """Return the stage that keys are about; empty where none is."""
        return self.here.selected if self.here.kind == "pipeline" else self.here.stage

    def at(self, **changes: object) -> "State":
        """Return the state with something else of the place that is looked at."""
        return self._replace(places=(*self.places[:-1], self.here._replace(**changes)))  # type: ignore[arg-type]


class Row(NamedTuple):
    """One thing that a row may show, as far as its place among others depends on it."""

    key: str
    # What a filter looks for.
    text: str
    amiss: bool = True
    # By the words of SORTS; the largest first.
    sorts: Mapping[str, float | str] = {}
    # Its cells, once it is seen.
    cells: Callable[[], tuple[str, ...]] = tuple


def arrange(state: State, rows: Sequence[Row], unseen: int, now: float) -> State:
    """Put the rows of a place into their order, as they are now; the selection follows its row. Of
    a text so many lines at most are not seen."""
    here = state.here
    if here.kind not in ROWS:
        # Of a driver, its document.
        selected = rows[0].key if rows else ""
        return state.at(selected=selected, offset=min(here.offset, unseen))
    there = [row for row in rows if _shown(row, state)]
    keys = [row.key for row in there]
    if state.held or now < state.settled_until:
        # What is new is below all that was there.
        place = {key: at for at, key in enumerate(here.order)}
        order = sorted(keys, key=lambda key: place.get(key, len(place)))
    elif here.sort:
        ascending = isinstance(there[0].sorts[here.sort], str) if there else False
        there.sort(key=lambda row: row.sorts[here.sort], reverse=here.reverse == ascending)
        order = [row.key for row in there]
    else:
        order = keys[::-1] if here.reverse else keys
    selected = here.selected
    if selected not in order:
        # What was selected has gone: whatever stands in its place now.
        at = here.order.index(selected) if selected in here.order else 0
        selected = order[min(at, len(order) - 1)] if order else ""
    return state.at(order=tuple(order), selected=selected)


def _shown(row: Row, state: State) -> bool:
    wanted = state.filter.casefold() in row.text.casefold()
    return wanted and (row.amiss or not state.amiss)


# Keys


def press(state: State, key: str, now: float) -> State:
    """Return what a key makes of it: a character, or the name of a key."""
    state = state._replace(said="", settled_until=now + SETTLED)
    if key == "gone":
        return state._replace(over=True)
    if state.help:
        return state._replace(help=False)
    if state.asked is not None:
        return _answer(state, state.asked, key)
    if state.typing is not None:
        return _type(state, state.typing, key)
    if key in _STEPS:
        return _move(state, _STEPS[key])
    act = _ACTS.get(key)
    if act is not None:
        return _ask(state, act, _by(key))
    return _MOVES[key](state) if key in _MOVES else state


def _move(state: State, step: int) -> State:
    here = state.here
    if here.kind not in ROWS:
        # Of a log the end is shown, and what was before it further up.
        return state.at(offset=max(0, here.offset + (-step if here.kind == "driver" else step)))
    if not here.order:
        return state
    at = here.order.index(here.selected) if here.selected in here.order else 0
    return state.at(selected=here.order[max(0, min(at + step, len(here.order) - 1))])


def _enter(state: State) -> State:
    here = state.here
    if here.kind not in _INTO or not here.selected:
        return state
    return _into(state, Place(_INTO[here.kind], here.selected, state.stage))


def _into(state: State, place: Place) -> State:
    return state._replace(places=(*state.places, place), filter="", amiss=False, settled_until=0.0)


def _leave(state: State) -> State:
    if state.filter or state.amiss:
        return state._replace(filter="", amiss=False, settled_until=0.0)
    return state._replace(places=state.places[:-1]) if state.places[1:] else state


def _sort(state: State) -> State:
    words = SORTS.get(state.here.kind, ("",))
    sort = words[(words.index(state.here.sort) + 1) % len(words)]
    return state._replace(settled_until=0.0, held=False).at(sort=sort, reverse=False)


def _reverse(state: State) -> State:
    now = state._replace(settled_until=0.0, held=False)
    return now.at(reverse=not state.here.reverse)


def _stacks(state: State) -> State:
    """Ask a driver for its stacks, which changes nothing."""
    here = state.here
    wish = Wish("stacks", here.stage, here.name) if here.kind == "driver" else None
    return state._replace(wish=wish)


_MOVES: dict[str, Callable[[State], State]] = {
    **dict.fromkeys(("enter", "right"), _enter),
    **dict.fromkeys(("escape", "left"), _leave),
    "q": lambda state: state._replace(over=True),
    "?": lambda state: state._replace(help=True),
    "/": lambda state: state._replace(typing=state.filter),
    "!": lambda state: state._replace(amiss=not state.amiss, settled_until=0.0),
    " ": lambda state: state._replace(held=not state.held),
    "s": _sort,
    "S": _reverse,
    "d": lambda state: _into(state, Place("causes", stage=state.stage)),
    "k": _stacks,
}


def _type(state: State, typed: str, key: str) -> State:
    """Take a key for the filter; rows are found as it is typed."""
    if key == "enter":
        return state._replace(typing=None)
    if key == "escape":
        return state._replace(typing=None, filter="", settled_until=0.0)
    typed = _typed(typed, key)
    return state._replace(typing=typed, filter=typed, settled_until=0.0)


def _typed(text: str, key: str) -> str:
    if key == "backspace":
        return text[:-1]
    return text + key if len(key) == 1 and key.isprintable() else text


# What changes something


def _ask(state: State, act: Act, more: int) -> State:
    """Ask back what is wished; nothing where it means nothing here."""
    here = state.here
    name = ""
    if act == "retry":
        name = {"causes": here.selected, "documents": here.name}.get(here.kind, "")
    elif act == "restart":
        name = {"stage": here.selected, "driver": here.name}.get(here.kind, "")
    if not (name if act == "retry" else state.stage):
        return state
    return state._replace(asked=Wish(act, state.stage, name, more), answer="")


def _by(key: str) -> int:
    return {"+": 1, "-": -1}.get(key, 0)


def _answer(state: State, wish: Wish, key: str) -> State:
    """Take a key for the answer: `yes` and Enter."""
    if key == "enter" and state.answer == _YES:
        return state._replace(asked=None, answer="", wish=wish)
    if key in ("enter", "escape"):
        return state._replace(asked=None, answer="", said="nothing was changed")
    if wish.act == "scale" and _by(key):
        return state._replace(asked=wish._replace(more=wish.more + _by(key)))
    return state._replace(answer=_typed(state.answer, key))


# What a terminal sends for a key: a sequence, of which these are the ends, or a character.
_SENT = re.compile(r"\033[\[O]([0-?]*[@-~]?)|(.)", re.DOTALL)
_SEQUENCES = {
    **{"A": "up", "B": "down", "C": "right", "D": "left", "H": "home", "F": "end"},
    **{"5~": "page-up", "6~": "page-down", "1~": "home", "4~": "end"},
}
_KEYS = {"\r": "enter", "\n": "enter", "\x7f": "backspace", "\b": "backspace", "\033": "escape"}


def keys_of(data: bytes) -> list[str]:
    """Return the keys in what a terminal sent at once; nothing at all: it is gone."""
    if not data:
        return ["gone"]
    found = _SENT.finditer(data.decode(errors="ignore"))
    keys = (_KEYS.get(one[2], one[2]) if one[2] else _SEQUENCES.get(one[1], "") for one in found)
    return list(filter(None, keys))
