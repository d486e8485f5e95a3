"""A console's terminal: lines that come without being waited for, and words around a prompt.

Nothing here blocks on reading, so whoever polls `fd` among others goes on hearing frames while
somebody types. The end of the input is `quit`.
"""

import os
import select
from collections.abc import Iterator

PROMPT = "> "
QUIT = "quit"

# Bytes of a line: more is no command.
_LONGEST = 64 * 1024


class Terminal:
    """Lines from one descriptor, words to another."""

    def __init__(self, level: int = 0, reads: int = 0, writes: int = 1) -> None:
        # How much is shown that nobody asked for: 0 to 9.
        self.level = level
        # Our own: what is done with it at the end of the input concerns nobody else.
        self.fd = os.dup(reads)
        self._writes = writes
        self._poll = select.poll()
        self._poll.register(self.fd, select.POLLIN)
        self._rest = b""
        self._prompted = False
        self._silent_end = -1

    def close(self) -> None:
        """Leave the descriptors as they were."""
        for fd in (self.fd, self._silent_end):
            if fd >= 0:
                os.close(fd)

    def lines(self) -> Iterator[list[str]]:
        """Yield the words of each line that has come."""
        while self._poll.poll(0):
            data = os.read(self.fd, 4096)
            if not data:
                self._silence()
                yield [QUIT]
                return
            self._rest += data
            while b"\n" in self._rest:
                line, _, self._rest = self._rest.partition(b"\n")
                self._prompted = False
                yield line.decode("utf-8", "replace").split()
            if len(self._rest) > _LONGEST:
                self._rest = b""

    def prompt(self) -> None:
        """Await the next command."""
        if not self._prompted:
            self._prompted = True
            self._write(PROMPT)

    def say(self, words: str) -> None:
        """Write a line of words; the prompt comes after it again."""
        if self._prompted:
            self._write(f"\r{words}\n{PROMPT}")
        else:
            self._write(f"{words}\n")

    def show(self, level: int, words: str) -> None:
        """Say what is worth saying from a level of -d on."""
        if level <= self.level:
            self.say(words)

    def refuse(self, name: str, known: str) -> None:
        """Say which commands there are."""
        self.say(f"no command {name!r}; there are: {known}, {QUIT}")

    def _silence(self) -> None:
        """Let nothing come from now on, and no poll wake for it: the end would wake each."""
        # The other end is held for as long as we live: without a writer a pipe is at its end, too.
        ours, self._silent_end = os.pipe()
        os.dup2(ours, self.fd)
        os.close(ours)

    def _write(self, text: str) -> None:
        data = text.encode("utf-8", "backslashreplace")
        while data:
            data = data[os.write(self._writes, data) :]
