"""What is asked of a watchdog is done once, the oldest first."""

from watchdogd.helper_messages import Controls, Read, Request
from watchdogd.pipeline.model import Pipeline
from watchdogd.requests import Reload, Requests

ONE, OTHER = Request("restart", "parse", "1111111111"), Request("reload", "", "2222222222")


def test_request_is_news_once() -> None:
    requests = Requests()
    assert requests.news(Controls(requests=(ONE,))) == [ONE]
    assert requests.news(Controls(requests=(ONE,))) == []
    assert requests.news(Controls(requests=(ONE, OTHER))) == [OTHER]
    assert requests.news(Controls(requests=(ONE, OTHER))) == []
    # One that is removed and made anew is another one, though it looks the same.
    assert requests.news(Controls(requests=(ONE,))) == []
    assert requests.news(Controls(requests=(ONE, OTHER))) == [OTHER]


def test_quit_that_was_there_before_is_outdated_and_one_that_comes_later_is_not() -> None:
    requests = Requests()
    before = Controls(quit="now", quit_at=1000)
    for _ in range(2):
        requests.news(before)
        assert requests.quit == ""
    # It is removed, or written once more, be it into the very file.
    for controls in (Controls(), Controls(quit="now", quit_at=2000)):
        requests.news(controls)
        assert requests.quit == controls.quit
    # A network file system may show it once more.
    requests.news(before)
    assert requests.quit == ""


def test_quit_that_comes_after_the_first_look_is_obeyed() -> None:
    requests = Requests()
    requests.news(Controls())
    requests.news(Controls(quit="drain", quit_at=1000))
    assert requests.quit == "drain"


def test_whatever_the_first_look_finds_is_news_the_oldest_first() -> None:
    # It reads its file and is reported as alive before its first look: who changes the file and
    # asks for a reload in between waits for an answer.
    requests, oldest = Requests(), Request("restart", "sort", "0000000000")
    controls = Controls(requests=(OTHER, ONE, oldest))
    assert requests.news(controls) == [oldest, ONE, OTHER]
    assert requests.news(controls) == []


PIPELINE = Pipeline(name="p", file="/p/p.toml", root="/p/q", stages=())


def test_whoever_asked_for_a_reload_is_answered_once_it_was_read() -> None:
    reload = Reload()
    reload.ask("1")
    # A signal has no serial, and nobody waits for it.
    reload.ask()
    assert not reload.served
    reload.ask("2")
    reload.answer(Read(error="line 3: no such key"))
    assert (reload.served, reload.error) == (("1", "2"), "line 3: no such key")
    for number in range(3, 15):
        reload.ask(str(number))
        reload.answer(Read(pipeline=PIPELINE))
    # Only the latest are told of.
    assert reload.served == tuple(map(str, range(5, 15)))


def test_all_who_are_answered_by_one_reading_are_told_of() -> None:
    reload, many = Reload(), tuple(map(str, range(50)))
    reload.ask("before")
    reload.answer(Read(pipeline=PIPELINE))
    reload.ask(*many)
    reload.answer(Read(pipeline=PIPELINE))
    assert reload.served == many


def test_notes_are_those_of_the_file_that_was_taken() -> None:
    reload = Reload()
    reload.answer(Read(pipeline=PIPELINE, notes=("a gets at most 2 of 8 drivers",)))
    reload.answer(Read(error="line 3"))
    assert (reload.error, reload.notes) == ("line 3", ("a gets at most 2 of 8 drivers",))
    reload.answer(Read(pipeline=PIPELINE))
    assert (reload.error, reload.notes) == ("", ())
