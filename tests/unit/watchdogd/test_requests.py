"""What is asked of a watchdog is done once; what was asked before it began is not done at all."""

from watchdogd.messages import Controls, Request
from watchdogd.requests import Requests

ONE, OTHER = Request("restart", "parse", "1111111111"), Request("reload", "", "2222222222")


def test_request_is_news_once_and_only_if_it_came_after_the_first_look() -> None:
    requests = Requests()
    assert requests.news(Controls(requests=(ONE,))) == []
    assert requests.news(Controls(requests=(ONE, OTHER))) == [OTHER]
    assert requests.news(Controls(requests=(ONE, OTHER))) == []
    # One that is removed and made anew is another one, though it looks the same.
    assert requests.news(Controls(requests=(ONE,))) == []
    assert requests.news(Controls(requests=(ONE, OTHER))) == [OTHER]


def test_quit_that_was_there_before_is_outdated_until_it_is_gone() -> None:
    requests = Requests()
    for _ in range(2):
        requests.news(Controls(quit="now"))
        assert (requests.quit, requests.outdated) == ("", True)
    requests.news(Controls())
    assert (requests.quit, requests.outdated) == ("", False)
    for how in ("drain", "now"):
        requests.news(Controls(quit=how))
        assert (requests.quit, requests.outdated) == (how, False)
