"""What a processor sees of a claimed item, and what it writes of it before the claim commits.

Every output is `<docid>.<N>.writing[.<ext>]` with the N of the claim, so whatever a crash leaves is
known to be unfinished, and whose. Names are noted before the files are made.
"""

import errno
import io
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import msgspec

from queuedriver.disk.filesystem import Directory, copy_all, regular_size
from queuedriver.errors import (
    BadArgument,
    BadDocid,
    ConfigError,
    FileSystemTrouble,
    ProcessorFailed,
    TakenBack,
    is_trouble,
    trouble,
)
from queuedriver.format import names
from queuedriver.format.records import Failure
from queuedriver.format.settings import Publication

if TYPE_CHECKING:
    from queuedriver.driving.limits import Limits

# What a write says of this output alone: its name is taken, or too much for this file system. And
# of this process, that it has too many files open.
_OF_THE_OUTPUT = frozenset(
    {errno.EEXIST, errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL, errno.EFBIG, errno.EMFILE}
)


class Document(msgspec.Struct, gc=False, eq=False):
    """One claimed document. Read it; never write, rename or delete it."""

    docid: str
    # How often it failed before: 0 the first time.
    attempt: int
    # The name of its queue.
    queue: str
    # Where its file is now.
    directory: Directory
    name: str
    # Whether anybody has looked at the file, and so found it to be one.
    seen: bool = False

    def __repr__(self) -> str:
        return f"<Document {self.docid!r} of {self.queue}, attempt {self.attempt}>"

    @property
    def path(self) -> str:
        """Return where its file is while it is being processed, for programs that want a name."""
        with self._told():
            regular = self.directory.is_regular(self.name)
        if not regular:
            raise _not_a_file(self.docid)
        self.seen = True
        return os.path.join(self.directory.path, self.name)

    def check(self) -> None:
        """Look now, if its processor never did: what is no file must not be taken for done."""
        if not self.seen:
            # Taken back meanwhile: then there is nothing to say, and nothing to commit.
            with suppress(FileNotFoundError):
                _ = self.path

    def size(self) -> int:
        """Return how many bytes its file has; 0 when it is gone."""
        with suppress(FileNotFoundError):
            return self.directory.status(self.name).st_size
        return 0

    def descriptor(self) -> int:
        """Return an open descriptor, for whoever passes it on; the caller closes it."""
        with self._told():
            fd = self.directory.open_read(self.name)
        if regular_size(fd) is None:
            os.close(fd)
            raise _not_a_file(self.docid)
        self.seen = True
        return fd

    def open(self) -> BinaryIO:
        """Open its contents as a stream, for documents larger than memory."""
        return os.fdopen(self.descriptor(), "rb")

    def read(self) -> bytes:
        """Return its contents."""
        try:
            data = self.directory.read_regular(self.name)
        except OSError:
            with self._told():
                raise
        if data is None:
            raise _not_a_file(self.docid)
        self.seen = True
        return data

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Tell what it means that the document cannot be read."""
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):
                raise _not_a_file(self.docid) from None
            if isinstance(error, FileNotFoundError):
                raise TakenBack(error.errno, os.strerror(errno.ENOENT), self.name) from None
            if is_trouble(error):
                raise trouble(error, f"reading {self.docid!r}") from None
            raise


def _not_a_file(docid: str) -> ProcessorFailed:
    message = f"{docid!r} is not a regular file (a symlink, directory, FIFO or device): not read"
    return ProcessorFailed(Failure(cause="not-a-file", message=message, permanent=True))


# Outputs


# Not `Path`, though it mostly is one: that takes its time to import.
_Data = bytes | str | os.PathLike[str]


class Output(msgspec.Struct, frozen=True):
    """One output of a document, when there is more to say than its bytes.

    `docid` is the document's own and `queue` the first output queue unless said otherwise. A Path
    is moved away from where it is.
    """

    data: _Data
    docid: str | None = None
    queue: str | None = None
    ext: str | None = None


_DATA = (bytes, bytearray, memoryview, str, os.PathLike)
Answer = _Data | Output | None | Iterable[_Data | Output]


class Written(msgspec.Struct, frozen=True, gc=False):
    """One output: in which output queue, under which name while unfinished, and which after."""

    queue: int
    writing: str
    final: str


class Target(NamedTuple):
    """An output queue as its writers see it."""

    name: str
    directory: Directory
    publication: Publication
    # Tells the directory from another one that is there while it is not mounted.
    landmark: str = ""

    @property
    def identity(self) -> str:
        """Return what tells the directory that is open from every other, a copy of it included."""
        return f"{self.directory.status().st_ino}-{self.landmark}"


# What no iterator gives.
_END = object()


class Outputs(msgspec.Struct, gc=False, eq=False):
    """The outputs of one claim."""

    docid: str
    token: str
    targets: tuple[Target, ...]
    # Whether the claim may end by the blind hand-over, if it has but the usual output.
    plain: bool = False
    # `docid.N`, of a plain claim.
    stem: str = ""
    # What there is, but for the one that goes without saying (`blind`).
    noted: list[Written] = []
    # Whether there is just the usual output of a plain claim, written here or looked for since:
    # then nobody need look at it again.
    blind: bool = False
    # Whether another process writes any: where that went has to be looked at.
    elsewhere: bool = False

    @property
    def written(self) -> list[Written]:
        """Return what was written, or is about to be."""
        return [self.expected] if self.blind else self.noted

    def writing(self, queue: int) -> list[str]:
        """Return the names in one of the output queues that what was written has there."""
        if self.blind:
            return [] if queue else [f"{self.stem}.writing"]
        return [one.writing for one in self.noted if one.queue == queue]

    @property
    def queues(self) -> set[int]:
        """Return in which of the output queues anything was written."""
        return {0} if self.blind else {one.queue for one in self.noted}

    @property
    def expected(self) -> Written:
        """Return the usual output: recovery can name it without a plan."""
        writing = names.writing_name(self.docid, self.token)
        return Written(0, writing, self.targets[0].publication.name(self.docid))

    @property
    def need_plan(self) -> bool:
        """Return whether there is more than just the usual output, which recovery knows."""
        return bool(self.noted) and not self.blind and self.noted != [self.expected]

    def take(self, answer: Answer, limits: "Limits") -> None:
        """Write what a processor answered. An iterator is consumed under the document's limits."""
        if type(answer) is bytes and self.plain and not (self.blind or self.noted):
            self.blind = True
            try:
                self.targets[0].directory.write_new(self.stem + ".writing", answer)
            except OSError:
                with self._ours():
                    raise
        elif answer is None:
            return
        elif isinstance(answer, (*_DATA, Output)):
            self._take_one(answer)
        elif not isinstance(answer, Iterable) or isinstance(answer, Mapping | io.IOBase):
            # What a mapping or an open file iterates over is not what was meant.
            raise _bad_answer(answer)
        else:
            iterator = limits.run(_iterate, answer)
            while (one := limits.run(_advance, iterator)) is not _END:
                self._take_one(one)

    def reserve(
        self, docid: str | None = None, queue: str | None = None, ext: str | None = None
    ) -> str:
        """Return the path of a further output, for the caller to create."""
        self.elsewhere = True
        return self._path(self._note(docid, queue, ext))

    def open_reserved(self) -> int:
        """Open a further output under the document's own docid; return its descriptor."""
        noted = self._note(None, None, None)
        self.elsewhere = True
        with self._ours():
            return self.targets[noted.queue].directory.open_new(noted.writing)

    def forget(self, path: str) -> None:
        """Drop a reserved output that is not wanted after all."""
        # By the whole path: in each of several output queues its name is the same.
        for noted in [one for one in self.noted if self._path(one) == path]:
            self.targets[noted.queue].directory.remove_all(noted.writing)
            self.noted.remove(noted)

    def is_file(self, path: str) -> bool:
        """Tell whether a file is where a reserved output was to be written; FileNotFoundError when
        nothing is. Asked by descriptor: the path may lead elsewhere by now, and so may have led
        whoever wrote it, which is nobody's fault."""
        noted = next(one for one in self.noted if self._path(one) == path)
        directory = self.targets[noted.queue].directory
        try:
            return directory.is_regular(noted.writing)
        except OSError as error:
            if is_trouble(error) or (isinstance(error, FileNotFoundError) and directory.moved()):
                raise trouble(error, f"looking at {path}") from None
            raise

    def make_blind(self) -> bool:
        """Let the claim end by the blind hand-over if there is just the usual output, and it is
        where another process was to write it; return whether that is so."""
        # What cannot be looked at now is looked at once more by whoever takes the other way.
        with suppress(OSError):
            usual = self.plain and len(self.noted) == 1 and self.noted[0] == self.expected
            if usual and not (self.elsewhere and self.missing()):
                self.noted.clear()
                self.blind = True
        return self.blind

    def discard(self) -> None:
        """Remove everything written: the claim failed, or was taken back."""
        for noted in self.written:
            directory = self.targets[noted.queue].directory
            directory.remove_all(noted.writing)
            if self.elsewhere:
                # What went by a path may be in another directory, where no sweeper looks for what
                # is ours.
                with suppress(OSError):
                    if directory.moved():
                        os.unlink(self._path(noted))
        self.clear()

    def clear(self) -> None:
        """Forget what was written."""
        self.noted.clear()
        self.blind = False

    def size(self) -> int:
        """Return how many bytes have been written so far."""
        size = 0
        for noted in self.written:
            with suppress(FileNotFoundError):
                size += self.targets[noted.queue].directory.status(noted.writing).st_size
        return size

    def missing(self) -> str:
        """Return the name of an output that is not where it was to be written, or is no file; ""
        when all are there. Asked by descriptor: a path may lead elsewhere by now."""
        for noted in self.written:
            with suppress(FileNotFoundError):
                if self.targets[noted.queue].directory.is_regular(noted.writing):
                    continue
            return noted.writing
        return ""

    def _path(self, noted: Written) -> str:
        return os.path.join(self.targets[noted.queue].directory.path, noted.writing)

    def _take_one(self, answer: object) -> None:
        output = answer if isinstance(answer, Output) else Output(answer)  # type: ignore[arg-type]
        data: object = output.data
        if not isinstance(data, _DATA):
            raise _bad_answer(data)
        noted = self._note(output.docid, output.queue, output.ext)
        if isinstance(data, str):
            try:
                data = data.encode()
            except UnicodeEncodeError as error:
                raise _failed(f"the text cannot be written as UTF-8: {error}") from None
        if isinstance(data, os.PathLike):
            path = os.path.abspath(os.fspath(data))
            try:
                self._move(path, noted)
            except OSError as error:
                if is_trouble(error) and not isinstance(error, FileSystemTrouble):
                    raise trouble(error, f"moving {path}") from None
                raise
        else:
            with self._ours():
                self.targets[noted.queue].directory.write_new(noted.writing, bytes(data))

    def _note(self, docid: str | None, queue: str | None, ext: str | None) -> Written:
        """Choose the names of an output and remember them, before anything is made."""
        if not self.targets:
            # No document can be blamed for that, and each would be discarded.
            raise ConfigError(
                f"{self.docid!r} was answered with an output, and there is nowhere to put it; "
                "name a queue or a directory by --to, or answer with nothing"
            )
        self.noted, self.blind = self.written, False
        index = 0 if queue is None else self._index(queue)
        try:
            docid = self.docid if docid is None else names.check_docid(docid)
            ext = "" if ext is None else names.check_ext(ext)
            final = self.targets[index].publication.name(docid)
        except (BadDocid, BadArgument) as error:
            raise _failed(f"an output cannot be named: {error}") from None
        noted = Written(index, names.writing_name(docid, self.token, ext), final)
        if any(one.queue == index and one.final == final for one in self.noted):
            where = self.targets[index].name
            raise _failed(f"two outputs of one document would both be {final!r} in {where}")
        self.noted.append(noted)
        return noted

    def _index(self, queue: str) -> int:
        for index, target in enumerate(self.targets):
            if queue in (target.name, target.directory.path):
                return index
        known = ", ".join(target.name for target in self.targets) or "none"
        raise _failed(f"there is no output queue {queue!r}; the driver was given: {known}")

    @contextmanager
    def _ours(self) -> Iterator[None]:
        """Tell that our own writing failed. But for a name or a size that will never do, that is
        never the document's fault: a directory that was removed or made read-only is nobody's."""
        try:
            yield
        except OSError as error:
            if error.errno in _OF_THE_OUTPUT:
                raise
            raise trouble(error, f"writing an output of {self.docid!r}") from None

    def _move(self, path: str, noted: Written) -> None:
        directory = self.targets[noted.queue].directory
        try:
            source = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            raise _failed(f"the answer names a file that is not there: {path}") from None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):
                raise _not_regular(path) from None
            raise
        try:
            if regular_size(source) is None:
                raise _not_regular(path)
            # A claimed file, its own or another's, is what an answer may name but not move.
            item = names.parse(os.path.basename(path))
            claimed = item is not None and item.claimed
            if not claimed and _renamed(path, directory, noted.writing):
                self.elsewhere = True
                return
            with self._ours():
                target = directory.open_new(noted.writing)
                try:
                    copy_all(source, target)
                finally:
                    os.close(target)
        finally:
            os.close(source)
        if not claimed:
            # Gone is what it was to be; a network file system may have lost the reply.
            with suppress(FileNotFoundError):
                os.unlink(path)


def _renamed(path: str, directory: Directory, name: str) -> bool:
    """Move a file in; False when it is on another mount, be that of the same file system."""
    try:
        os.rename(path, name, dst_dir_fd=directory.fd)
    except OSError as error:
        # The reply to a rename that happened may be lost; the name has an N that nobody else uses.
        if isinstance(error, FileNotFoundError) and directory.present(name):
            return True
        if error.errno != errno.EXDEV:
            raise
        return False
    return True


def _not_regular(path: str) -> ProcessorFailed:
    return _failed(f"the answer names something that is not a regular file: {path}")


def _failed(message: str) -> ProcessorFailed:
    return ProcessorFailed(Failure(cause="bad-answer", message=message))


def _bad_answer(answer: object) -> ProcessorFailed:
    kind = type(answer).__name__
    return _failed(
        f"the processor answered with a {kind}; it may answer bytes, str, Path, Output, None, "
        "or an iterable of them"
    )


def _iterate(answer: Iterable[Output]) -> Iterator[Output]:
    return iter(answer)


def _advance(iterator: Iterator[object]) -> object:
    return next(iterator, _END)
