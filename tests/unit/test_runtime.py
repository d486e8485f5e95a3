"""What the stacks of a hung driver say of whom to blame."""

import pytest

from queuedriver.runtime import waited_for_files

_BEAT = """Timeout (0:00:40)!
Thread 0x00007f00 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait
  File "/site/queuedriver/liveness.py", line 288 in _run

"""
_OURS = """Thread 0x00007f01 (most recent call first):
{innermost}  File "/site/queuedriver/turn.py", line 120 in _work_one
  File "/site/queuedriver/loop.py", line 160 in _work
"""
_IN_FILES = '  File "/site/queuedriver/filesystem.py", line 104 in rename\n'
_IN_USERS = '  File "/home/ann/words.py", line 3 in count\n'


@pytest.mark.parametrize(
    ("stacks", "files"),
    [
        (_BEAT + _OURS.format(innermost=_IN_FILES), True),
        (_OURS.format(innermost=_IN_FILES) + "\n" + _BEAT, True),
        (_BEAT + _OURS.format(innermost=_IN_USERS), False),
        # The user's code called ours, which then hung: it is the file system all the same.
        (_BEAT + _OURS.format(innermost=_IN_FILES + _IN_USERS), True),
        # Our code called the user's.
        (_BEAT + _OURS.format(innermost=_IN_USERS + _IN_FILES), False),
        (_BEAT, False),
        ("", False),
    ],
)
def test_a_driver_that_waited_for_its_file_system_is_told_from_one_whose_document_hung(
    stacks: str, files: bool
) -> None:
    assert waited_for_files(stacks) is files
