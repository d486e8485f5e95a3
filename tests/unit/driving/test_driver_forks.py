"""N is never used twice, not even by a fork of a driver that the user's code makes."""

import os

from queuedriver.driving import loop
from queuedriver.format import names


def test_a_fork_of_a_driver_forms_other_names() -> None:
    mint = names.Mint("a", "none")
    loop.mints.add(mint)
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(writer, mint.next(1).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    theirs = names.parse_token(os.read(reader, 64).decode())
    os.close(reader)
    os.close(writer)
    assert theirs.driver == "a"
    assert theirs.salt != "none"
    assert mint.next(1) == "a-00000000000001none"
