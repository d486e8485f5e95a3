"""What an intake may be told, and what it says of what cannot be meant."""

from typing import Any

import pytest

from queuedriver.errors import ConfigError
from queuedriver.intake.options import IntakeOptions, fill


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"docid": "x"}, "--docid 'x' names all documents alike"),
        ({"docid": "{nmae}"}, "--docid '{nmae}' has {nmae}; right would be {name}"),
        ({"done": "{path}.done"}, "--done '{path}.done' has {path}"),
        ({"done": "sub/ok"}, "--done 'sub/ok' is no name"),
        ({"manifest": "{docid}"}, "--manifest"),
        ({"after": "/archive"}, "--after '/archive' is no directory below the folder"),
        ({"after": "../archive"}, "--after"),
        ({"complete": " "}, "--complete"),
        ({"settle": 0.0}, "--settle 0.0: more than 0"),
        ({"max_depth": 0}, "--max-depth 0: at least 1"),
        ({"min_size": 5, "max_size": 4}, "--max-size is less than min_size"),
    ],
)
def test_what_cannot_be_meant_is_said_by_its_name(told: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as error:
        IntakeOptions(**told).check()
    assert str(error.value).startswith(words)


@pytest.mark.parametrize("after", ["move", "leave", "archive/%Y-%m", "done"])
def test_what_is_usual_may_be_meant(after: str) -> None:
    options = IntakeOptions(after=after, done="{stem}.ok", manifest="SHA256SUMS").check()
    assert options.leaves == (after == "leave")
    assert options.archive == (after if after not in ("move", "leave") else "")


def test_a_form_is_filled_in_with_what_is_known_of_a_file() -> None:
    assert fill("{stem}.ok", "a.tar.gz") == "a.tar.ok"
    assert fill("{stem}", "plain") == "plain"
    assert fill("{path}", "c", "a/b/c") == "a_b_c"
