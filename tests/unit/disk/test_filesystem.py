"""The calls that the protocol is made of: what they replace, what they leave, what they follow."""

import errno
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuedriver.disk import filesystem
from queuedriver.disk.filesystem import Directory, is_replaced
from queuedriver.errors import NotRegular
from tests.holdings import open_files

if TYPE_CHECKING:
    from tests.conftest import Bench


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """As on a full disk: what would grow a file beyond `size` is written in part, then refused."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)


@pytest.fixture(params=[True, False], ids=["noreplace", "no-noreplace"])
def directory(bench: "Bench", request: pytest.FixtureRequest) -> Directory:
    """A directory, and one on a file system that refuses RENAME_NOREPLACE."""
    return bench.directory("d", noreplace=request.param)


# Renames


def test_rename_new_moves_to_a_free_name(directory: Directory, bench: "Bench") -> None:
    bench.put("d/a", b"1")
    directory.rename_new("a", "b")
    assert bench.ls("d") == ["b"]


@pytest.mark.parametrize("kind", ["file", "symlink", "directory"])
def test_rename_new_never_replaces(directory: Directory, bench: "Bench", kind: str) -> None:
    bench.put("d/a", b"mine")
    there = bench.root / "d/b"
    match kind:
        case "file":
            there.write_bytes(b"theirs")
        case "symlink":
            there.symlink_to("nowhere")
        case _:
            there.mkdir()
    before = os.lstat(there)
    with pytest.raises(FileExistsError) as caught:
        directory.rename_new("a", "b")
    assert (caught.value.filename, caught.value.filename2) == ("a", "b")
    assert os.lstat(there) == before
    assert bench.read("d/a") == b"mine"


def test_rename_new_never_replaces_in_another_directory(
    directory: Directory, bench: "Bench"
) -> None:
    other = bench.directory("e", noreplace=directory._noreplace)
    bench.put("d/a", b"mine")
    bench.put("e/b", b"theirs")
    with pytest.raises(FileExistsError):
        directory.rename_new("a", "b", other)
    directory.rename_new("a", "c", other)
    assert bench.ls("d") == []
    assert bench.read("e/b") == b"theirs"
    assert bench.read("e/c") == b"mine"


def test_rename_new_of_what_is_gone_says_so(directory: Directory) -> None:
    with pytest.raises(FileNotFoundError):
        directory.rename_new("a", "b")


def test_names_that_are_not_utf8_are_renamed_too(directory: Directory) -> None:
    raw = os.path.join(os.fsencode(directory.path), b"caf\xe9")
    with open(raw, "wb"):
        pass
    (name,) = [*directory.names()]
    directory.rename_new(name, "cafe")
    assert [*directory.names()] == ["cafe"]
    directory.rename_new("cafe", name)
    assert os.listdir(os.fsencode(directory.path)) == [b"caf\xe9"]


def test_names_are_what_they_are_in_an_old_locale_too(bench: "Bench") -> None:
    directory = bench.directory("d")
    with open(os.path.join(os.fsencode(directory.path), b"caf\xc3\xa9"), "wb"):
        pass
    script = """
import sys
from queuedriver.disk.filesystem import Directory
directory = Directory.open(sys.argv[1])
(name,) = [*directory.names()]
directory.rename_new(name, name + "2")
print(sys.getfilesystemencoding())
"""
    environ = {**os.environ, "LC_ALL": "en_US.ISO-8859-1", "PYTHONUTF8": "0"}
    ran = subprocess.run(
        [sys.executable, "-c", script, directory.path],
        env={**environ, "PYTHONCOERCECLOCALE": "0"},
        capture_output=True,
        check=True,
    )
    # Where that locale is not installed it is UTF-8 after all, or ASCII.
    assert ran.stdout
    assert os.listdir(os.fsencode(directory.path)) == [b"caf\xc3\xa92"]


def test_where_the_kernel_refuses_noreplace_it_is_asked_once(bench: "Bench") -> None:
    # A file system without it is not at hand; a directory moved into itself gets the same EINVAL.
    directory = bench.directory("d")
    (bench.root / "d/sub").mkdir()
    with pytest.raises(OSError, match="Invalid argument"):
        directory.rename_new("sub", "sub/sub")
    bench.put("d/a", b"mine")
    bench.put("d/b", b"theirs")
    with pytest.raises(FileExistsError):
        directory.rename_new("a", "b")
    directory.rename_new("a", "c")
    assert bench.read("d/b") == b"theirs"


def test_rename_over_replaces(directory: Directory, bench: "Bench") -> None:
    bench.put("d/a", b"new")
    bench.put("d/b", b"old")
    directory.rename_over("a", "b")
    assert bench.ls("d") == ["b"]
    assert bench.read("d/b") == b"new"


def test_a_directory_moved_meanwhile_is_still_the_same(
    directory: Directory, bench: "Bench"
) -> None:
    bench.put("d/a")
    os.rename(bench.root / "d", bench.root / "moved")
    directory.rename_new("a", "b")
    assert bench.ls("moved") == ["b"]
    assert directory.moved()


# Whether something is there


@pytest.mark.parametrize(
    "kind", ["file", "unreadable", "directory", "symlink", "dangling", "loop", "fifo", "socket"]
)
def test_whatever_is_there_is_present_and_is_not_waited_for(bench: "Bench", kind: str) -> None:
    directory = bench.directory("d")
    path = bench.root / "d/a"
    match kind:
        case "file":
            path.touch()
        case "unreadable":
            path.touch(mode=0)
        case "directory":
            path.mkdir()
        case "symlink":
            path.symlink_to(bench.put("other"))
        case "dangling":
            path.symlink_to("nowhere")
        case "loop":
            path.symlink_to(path)
        case "fifo":
            os.mkfifo(path)
        case _:
            with socket.socket(socket.AF_UNIX) as listening:
                # The path of a socket may be but short.
                here = os.getcwd()
                os.chdir(path.parent)
                try:
                    listening.bind("a")
                finally:
                    os.chdir(here)
    assert directory.present("a")
    assert not directory.present("b")
    assert directory.is_regular("a") is (kind in ("file", "unreadable"))


def test_what_is_too_long_to_be_a_name_is_not_there(bench: "Bench") -> None:
    assert not bench.directory("d").present(300 * "x")


def test_present_raises_what_does_not_answer_the_question(bench: "Bench") -> None:
    directory = bench.directory("d")
    bench.put("d/file")
    with pytest.raises(NotADirectoryError):
        directory.present("file/below")


def test_a_directory_is_gone_when_deleted_or_replaced(bench: "Bench") -> None:
    directory = bench.directory("d")
    assert not directory.moved()
    os.rmdir(bench.root / "d")
    assert directory.moved()
    os.mkdir(bench.root / "d")
    assert directory.moved()
    directory.reopen()
    assert not directory.moved()


def test_reopening_keeps_the_number_of_the_descriptor(bench: "Bench") -> None:
    directory = bench.directory("d")
    number = directory.fd
    directory.reopen()
    assert directory.fd == number
    os.rmdir(bench.root / "d")
    with pytest.raises(FileNotFoundError):
        directory.reopen()


def test_what_is_ours_inside_is_made_anew_and_nothing_above_it(bench: "Bench") -> None:
    above = bench.directory("d")
    inside = above.subdirectory("ours", create=True)
    os.rmdir(bench.root / "d/ours")
    inside.reopen(create=True)
    assert [*above.names()] == ["ours"]
    os.rename(bench.root / "d", bench.root / "moved away")
    with pytest.raises(FileNotFoundError):
        inside.reopen(create=True)
    assert os.listdir(bench.root) == ["moved away"]
    inside.close()


def test_a_directory_that_took_the_place_of_another_is_told_from_it_though_it_was_opened_since(
    bench: "Bench",
) -> None:
    directory = bench.directory("d")
    was = directory.status()
    directory.reopen()
    assert not is_replaced(directory.path, was)
    os.rename(bench.root / "d", bench.root / "moved away")
    assert not is_replaced(directory.path, was)
    os.mkdir(bench.root / "d")
    directory.reopen()
    assert is_replaced(directory.path, was)


# Reading


def test_what_is_read_has_a_limit(bench: "Bench") -> None:
    directory = bench.directory("d")
    bench.put("d/a", b"0123456789")
    assert directory.read("a") == b"0123456789"
    assert directory.read("a", limit=4) == b"0123"
    assert directory.read("a", limit=10) == b"0123456789"
    bench.put("d/empty", b"")
    assert directory.read("empty") == b""


def test_nothing_is_read_through_a_symlink(bench: "Bench") -> None:
    directory = bench.directory("d")
    (bench.root / "d/a").symlink_to(bench.put("secret"))
    with pytest.raises(NotRegular, match="not a regular file"):
        directory.read("a")
    for read in (directory.open_read, directory.read_regular):
        with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
            read("a")


def test_a_fifo_is_not_waited_for(bench: "Bench") -> None:
    directory = bench.directory("d")
    os.mkfifo(bench.root / "d/a")
    fd = directory.open_read("a")
    try:
        assert filesystem.regular_size(fd) is None
    finally:
        os.close(fd)
    with pytest.raises(NotRegular):
        directory.read("a")


@given(st.binary(max_size=50), st.integers(0, 60))
def test_read_up_to_gives_what_there_is_and_no_more(data: bytes, size: int) -> None:
    # From a pipe, which gives it in pieces.
    reading, writing = os.pipe()
    try:
        os.write(writing, data)
        os.close(writing)
        assert filesystem.read_up_to(reading, size) == data[:size]
    finally:
        os.close(reading)


# Writing


def test_write_new_never_replaces(bench: "Bench") -> None:
    directory = bench.directory("d")
    directory.write_new("a", b"1")
    with pytest.raises(FileExistsError):
        directory.write_new("a", b"2")
    (bench.root / "d/link").symlink_to(bench.root / "elsewhere")
    with pytest.raises(FileExistsError):
        directory.write_new("link", b"2")
    assert bench.read("d/a") == b"1"
    assert not (bench.root / "elsewhere").exists()


def test_who_may_read_a_new_file_is_the_umasks_to_say(bench: "Bench") -> None:
    directory = bench.directory("d")
    before = os.umask(0o027)
    try:
        directory.write_new("a", b"1")
        directory.write_aside("b", b"1")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (bench.root / "d").iterdir()} == {0o640}


@pytest.mark.parametrize("durable", [False, True])
def test_write_aside_replaces_as_a_whole_and_leaves_nothing_beside(
    bench: "Bench", durable: bool
) -> None:
    directory = bench.directory("d")
    for data in (b"old", b"new"):
        directory.write_aside("a", data, durable)
    assert os.listdir(bench.root / "d") == ["a"]
    assert bench.read("d/a") == b"new"


def test_write_aside_leaves_nothing_when_it_fails(bench: "Bench") -> None:
    directory = bench.directory("d")
    directory.write_aside("a", b"old")
    with no_file_larger_than(1000), pytest.raises(OSError, match="too large"):
        directory.write_aside("a", bytes(2000))
    assert os.listdir(bench.root / "d") == ["a"]
    assert bench.read("d/a") == b"old"
    (bench.root / "d/taken").mkdir()
    with pytest.raises(NotRegular):
        directory.write_aside("taken", b"new")
    assert sorted(os.listdir(bench.root / "d")) == ["a", "taken"]


@pytest.mark.parametrize("durable", [False, True])
def test_write_first_leaves_the_first_and_nothing_beside(bench: "Bench", durable: bool) -> None:
    directory = bench.directory("d")
    directory.write_first("a", b"first", durable)
    with pytest.raises(FileExistsError):
        directory.write_first("a", b"second", durable)
    assert os.listdir(bench.root / "d") == ["a"]
    assert bench.read("d/a") == b"first"


def test_a_reader_beside_a_writer_never_sees_a_part(bench: "Bench") -> None:
    directory = bench.directory("d")
    directory.write_aside("a", bytes(10_000))
    stop = threading.Event()

    def write() -> None:
        for size in range(200):
            directory.write_aside("a", bytes(10_000 + size))
        stop.set()

    writer = threading.Thread(target=write)
    writer.start()
    reads = 0
    try:
        while not stop.is_set() or not reads:
            assert len(directory.read("a")) >= 10_000
            reads += 1
    finally:
        writer.join()


def test_a_write_that_is_cut_short_is_gone_on_with(bench: "Bench") -> None:
    reading, writing = os.pipe()
    got = []

    def drain() -> None:
        while chunk := os.read(reading, 1000):
            got.append(chunk)

    reader = threading.Thread(target=drain)
    reader.start()
    data = os.urandom(300_000)
    try:
        # A pipe takes 64 KiB at a time.
        os.set_blocking(writing, True)
        filesystem.write_all(writing, data)
    finally:
        os.close(writing)
        reader.join()
        os.close(reading)
    assert b"".join(got) == data


def test_a_probe_leaves_nothing_and_sees_a_full_disk(bench: "Bench") -> None:
    directory = bench.directory("d")
    directory.check_writable(filesystem.A_LITTLE)
    with no_file_larger_than(1000), pytest.raises(OSError, match="too large"):
        directory.check_writable(filesystem.A_LITTLE)
    assert os.listdir(bench.root / "d") == []


@pytest.mark.parametrize("size", [0, 1, 4096, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3_000_001])
def test_copies_of_any_size_are_whole(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    (tmp_path / "a").write_bytes(data)
    with open(tmp_path / "a", "rb") as source, open(tmp_path / "b", "wb") as target:
        filesystem.copy_all(source.fileno(), target.fileno())
    assert (tmp_path / "b").read_bytes() == data


@pytest.mark.parametrize("size", [0, 1, 200_000])
def test_what_the_kernel_cannot_copy_is_copied_all_the_same(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    (tmp_path / "a").write_bytes(data)
    reading, writing = os.pipe()
    got = []

    def drain() -> None:
        while chunk := os.read(reading, 65_536):
            got.append(chunk)

    reader = threading.Thread(target=drain)
    reader.start()
    try:
        with open(tmp_path / "a", "rb") as source:
            filesystem.copy_all(source.fileno(), writing)
    finally:
        os.close(writing)
        reader.join()
        os.close(reading)
    assert b"".join(got) == data


def test_a_copy_starts_where_the_source_stands(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    with open(tmp_path / "a", "rb", buffering=0) as source, open(tmp_path / "b", "wb") as target:
        source.seek(4)
        filesystem.copy_all(source.fileno(), target.fileno())
    assert (tmp_path / "b").read_bytes() == b"456789"


# Removing


def test_what_is_removed_may_be_gone(bench: "Bench") -> None:
    directory = bench.directory("d")
    bench.put("d/a")
    assert directory.remove("a")
    assert not directory.remove("a")
    bench.put("d/dir/file")
    directory.remove_all("dir")
    directory.remove_all("dir")
    assert bench.ls("d") == []


# Listing


def test_listings_do_not_disturb_each_other(bench: "Bench") -> None:
    directory = bench.directory("d")
    for number in range(100):
        bench.put(f"d/{number}")
    one, two = directory.names(), directory.names()
    seen = [(next(one), next(two)) for _ in range(100)]
    assert len({name for name, _ in seen}) == len({name for _, name in seen}) == 100
    assert list(one) == list(two) == []


def test_a_listing_given_up_gives_its_descriptor_back(bench: "Bench") -> None:
    directory = bench.directory("d")
    bench.put("d/a")
    before = open_files()
    for _ in range(20):
        next(directory.names())
    # What earlier tests left may be collected meanwhile.
    assert open_files() <= before


# Directories


def test_directories_are_made_with_their_parents(tmp_path: Path) -> None:
    filesystem.make_directory(str(tmp_path / "a/b/c"))
    filesystem.make_directory(str(tmp_path / "a/b/c"))
    assert (tmp_path / "a/b/c").is_dir()


def test_many_may_make_one_directory_at_once(tmp_path: Path) -> None:
    threads, failures = [], []
    start = threading.Barrier(8)

    def make(number: int) -> None:
        try:
            for turn in range(20):
                start.wait()
                Directory.open(tmp_path / f"{turn}/b/c", create=True).close()
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failures.append(error)
            start.abort()

    for number in range(8):
        threads.append(threading.Thread(target=make, args=(number,)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_file_in_the_way_is_not_taken_for_a_directory(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(NotADirectoryError):
        Directory.open(tmp_path / "a", create=True)
    with pytest.raises(NotADirectoryError):
        Directory.open(tmp_path / "a/b", create=True)


def test_directory_that_a_user_named_is_not_made_with_what_is_ours_inside(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Directory.open(tmp_path / "root/.ours/more", create=True, inside=2)
    assert not (tmp_path / "root").exists()
    (tmp_path / "root").mkdir()
    Directory.open(tmp_path / "root/.ours/more", create=True, inside=2).close()
    assert (tmp_path / "root/.ours/more").is_dir()


def test_room_tells_what_is_left(bench: "Bench") -> None:
    room = bench.directory("d").room()
    assert room.free_bytes > 0
    assert not room.read_only
