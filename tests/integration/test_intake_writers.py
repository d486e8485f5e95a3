"""What the programs do with which people drop files, whole, stopped half-way and cut off: no half
file enters, but one that broke off under its final name where nobody asked for its end."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.waiting import PATIENCE, until

SFTP_SERVER = "/usr/lib/openssh/sftp-server"
WHOLE = b"%PDF-1.4\n" + os.urandom(1 << 20) + b"\n%%EOF\n"
HALF = len(WHOLE) // 2
# Kilobytes, and kilobits, a second: some seconds for all of it, so that a busy machine comes in
# time to stop it half-way.
_SLOW = "250"
_SLOW_BITS = "2000"


class Place:
    """A folder with an intake, and where writers have their files."""

    def __init__(self, root: Path, at_end: ExitStack) -> None:
        self.root = root
        self.folder, self.queue = root / "drops", root / "queue"
        self.source = root / "source" / "a.pdf"
        for path in (self.folder, self.queue, self.source.parent):
            path.mkdir()
        self.source.write_bytes(WHOLE)
        self._at_end = at_end
        self._decoys = 0

    def takes(self, *told: str) -> None:
        """Let an intake take from the folder."""
        words = [sys.executable, "-P", "-m", "queuedriver", "intake"]
        words += [str(self.folder), str(self.queue)]
        process = subprocess.Popen(
            [*words, "--settle", "200ms", "--min-free", "0", "--quiet", *told]
        )
        self._at_end.callback(process.wait)
        self._at_end.callback(process.kill)
        until((self.folder / ".queuedriver-intake/told.json").exists)

    def entered(self) -> dict[str, bytes]:
        found = {}
        for path in self.queue.glob("*.ready"):
            if not path.name.startswith("decoy"):
                found[path.name.removesuffix(".ready")] = path.read_bytes()
        return found

    def settles(self) -> None:
        """Wait until what stands still from now on would have settled, twice."""
        for _ in range(2):
            self._decoys += 1
            decoy = f"decoy{self._decoys}.txt"
            (self.folder / f".{decoy}").write_bytes(b"%PDF- %%EOF")
            (self.folder / f".{decoy}").rename(self.folder / decoy)
            until((self.queue / f"{decoy}.ready").exists, decoy)

    def written(self) -> int:
        """How much there is of the largest file that is being written."""
        sizes = [0]
        # What is there may be gone when it is looked at.
        for directory, inner, files in os.walk(self.folder):
            inner[:] = [name for name in inner if name != ".queuedriver-intake"]
            for name in files:
                with suppress(FileNotFoundError):
                    size = os.stat(os.path.join(directory, name)).st_size
                    sizes.append(0 if "decoy" in name else size)
        return max(sizes)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as at_end:
        yield Place(tmp_path, at_end)


class Writer(NamedTuple):
    """A program that writes a file into the folder."""

    needs: tuple[str, ...]
    begin: Callable[[Place, ExitStack], "subprocess.Popen[bytes]"]
    # Whether it leaves a half file under the final name when it is cut off, by this signal.
    leaves_half: bool
    cut_by: signal.Signals = signal.SIGKILL


def _run(*words: object, stdin: int | None = subprocess.DEVNULL) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [str(word) for word in words],
        stdin=stdin,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _rsync(*options: str) -> Callable[[Place, ExitStack], "subprocess.Popen[bytes]"]:
    def begin(place: Place, _: ExitStack) -> "subprocess.Popen[bytes]":
        return _run(
            *("rsync", "-a", f"--bwlimit={_SLOW}", *options, place.source, f"{place.folder}/")
        )

    return begin


def _scp(place: Place, _: ExitStack) -> "subprocess.Popen[bytes]":
    target = f"nowhere:{place.folder}/a.pdf"
    return _run("scp", "-D", SFTP_SERVER, "-l", _SLOW_BITS, "-p", place.source, target)


def _sftp(*lines: str) -> Callable[[Place, ExitStack], "subprocess.Popen[bytes]"]:
    def begin(place: Place, _: ExitStack) -> "subprocess.Popen[bytes]":
        batch = place.root / "batch"
        batch.write_text("".join(f"{line}\n" for line in lines).format(place=place))
        return _run("sftp", "-D", SFTP_SERVER, "-l", _SLOW_BITS, "-b", batch)

    return begin


def _fed(
    *words: str, data: Callable[[Place], bytes] = lambda place: WHOLE
) -> Callable[[Place, ExitStack], "subprocess.Popen[bytes]"]:
    """A program that reads what it writes from its stdin, which has half of it for a while."""

    def begin(place: Place, at_end: ExitStack) -> "subprocess.Popen[bytes]":
        content = data(place)
        process = _run(*(word.format(place=place) for word in words), stdin=subprocess.PIPE)
        pipe = process.stdin
        assert pipe is not None

        def feed() -> None:
            # It is cut off in between.
            with suppress(OSError):
                pipe.write(content[: len(content) * 2 // 3])
                pipe.flush()
                GO_ON[place].wait()
                pipe.write(content[len(content) * 2 // 3 :])
            with suppress(OSError):
                pipe.close()

        GO_ON[place] = threading.Event()
        thread = threading.Thread(target=feed)
        thread.start()
        at_end.callback(thread.join)
        at_end.callback(GO_ON[place].set)
        return process

    return begin


# What lets those go on that wait with a part of what they write.
GO_ON: dict[Place, threading.Event] = {}


def _tar(place: Place) -> bytes:
    words = ["tar", "c", "-C", str(place.source.parent), place.source.name]
    return subprocess.run(words, capture_output=True, check=True).stdout


def _curl(place: Place, at_end: ExitStack) -> "subprocess.Popen[bytes]":
    go_on = GO_ON[place] = threading.Event()

    class Half(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(WHOLE)))
            self.send_header("Last-Modified", "Thu, 01 Jan 2015 00:00:00 GMT")
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(WHOLE[: len(WHOLE) * 2 // 3])
                self.wfile.flush()
                go_on.wait()
                self.wfile.write(WHOLE[len(WHOLE) * 2 // 3 :])

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Half)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    at_end.callback(thread.join)
    at_end.callback(server.server_close)
    at_end.callback(server.shutdown)
    at_end.callback(go_on.set)
    url = f"http://127.0.0.1:{server.server_port}/"
    return _run("curl", "-sNR", "-o", place.folder / "a.pdf", url)


_PUT = "put -p {place.source} {place.folder}/a.pdf"
WRITERS = {
    "rsync": Writer(("rsync",), _rsync(), leaves_half=False),
    "rsync -P": Writer(("rsync",), _rsync("-P"), leaves_half=True, cut_by=signal.SIGINT),
    "rsync --inplace": Writer(("rsync",), _rsync("--inplace"), leaves_half=True),
    "rsync --inplace --preallocate": Writer(
        ("rsync",), _rsync("--inplace", "--preallocate"), leaves_half=True
    ),
    "rsync --delay-updates": Writer(("rsync",), _rsync("--delay-updates"), leaves_half=False),
    "scp": Writer(("scp", SFTP_SERVER), _scp, leaves_half=True),
    "sftp put": Writer(("sftp", SFTP_SERVER), _sftp(_PUT), leaves_half=True),
    "sftp put and rename": Writer(
        ("sftp", SFTP_SERVER),
        _sftp(
            "put {place.source} {place.folder}/.a.part",
            "rename {place.folder}/.a.part {place.folder}/a.pdf",
        ),
        leaves_half=False,
    ),
    "tar x": Writer(
        ("tar",), _fed("tar", "x", "-C", "{place.folder}", data=_tar), leaves_half=True
    ),
    "cp -p": Writer(
        ("cp",), _fed("cp", "-p", "/dev/stdin", "{place.folder}/a.pdf"), leaves_half=True
    ),
    "curl -R": Writer(("curl",), _curl, leaves_half=True),
}


@pytest.fixture(params=WRITERS)
def writer(request: pytest.FixtureRequest) -> Writer:
    found = WRITERS[request.param]
    for program in found.needs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed (.ci/testbed.sh)")
    return found


def test_what_was_stopped_half_way_enters_when_it_is_whole(place: Place, writer: Writer) -> None:
    place.takes()
    with ExitStack() as at_end:
        process = writer.begin(place, at_end)
        until(lambda: place.written() >= HALF // 2, "half of it")
        os.killpg(process.pid, signal.SIGSTOP)
        place.settles()
        assert place.entered() == {}
        os.killpg(process.pid, signal.SIGCONT)
        if place in GO_ON:
            GO_ON[place].set()
        assert process.wait(PATIENCE) == 0
        until(lambda: place.entered() == {"a.pdf": WHOLE}, "it enters")
        place.settles()
        assert place.entered() == {"a.pdf": WHOLE}


def test_what_was_cut_off_does_not_enter_where_its_end_was_asked_for(
    place: Place, writer: Writer
) -> None:
    place.takes("--complete", "pdf")
    with ExitStack() as at_end:
        process = writer.begin(place, at_end)
        until(lambda: place.written() >= HALF // 2, "half of it")
        os.killpg(process.pid, writer.cut_by)
        process.wait(PATIENCE)
        place.settles()
        assert place.entered() == {}
        assert (place.folder / "a.pdf").exists() == writer.leaves_half


def test_a_half_file_under_its_final_name_is_a_whole_one_to_whoever_looks(place: Place) -> None:
    """The page says so: this is what cannot be promised."""
    if shutil.which("scp") is None:
        pytest.skip("scp is not installed (.ci/testbed.sh)")
    place.takes()
    with ExitStack() as at_end:
        process = _scp(place, at_end)
        until(lambda: place.written() >= HALF // 2, "half of it")
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE)
        until(lambda: "a.pdf" in place.entered())
        assert WHOLE.startswith(place.entered()["a.pdf"])


def test_a_move_from_another_file_system_enters_once_and_whole(place: Place) -> None:
    shared = Path("/dev/shm")
    if not shared.is_dir() or shared.stat().st_dev == place.folder.stat().st_dev:
        pytest.skip("/dev/shm is no file system of its own here")
    place.takes()
    elsewhere = Path(tempfile.mkdtemp(dir=shared))
    try:
        for number in range(5):
            shutil.copy(place.source, elsewhere / f"{number}.pdf")
        subprocess.run(["mv", *elsewhere.iterdir(), place.folder], check=True)
        until(lambda: place.entered() == {f"{number}.pdf": WHOLE for number in range(5)})
    finally:
        shutil.rmtree(elsewhere)


def test_a_link_and_a_move_within_the_file_system_enter_as_they_are(place: Place) -> None:
    place.takes()
    os.link(place.source, place.folder / "linked.pdf")
    os.rename(shutil.copy(place.source, place.root / "b"), place.folder / "moved.pdf")
    until(lambda: place.entered() == {"linked.pdf": WHOLE, "moved.pdf": WHOLE})
    # The document is another file than what was linked.
    place.source.write_bytes(b"changed")
    assert place.entered()["linked.pdf"] == WHOLE


def test_a_quick_copy_enters(place: Place) -> None:
    place.takes()
    subprocess.run(["cp", place.source, place.folder], check=True)
    until(lambda: place.entered() == {"a.pdf": WHOLE})
