"""The server and the process that looks: sockets, tokens, one look however many watch."""

import json
import os
import re
import socket
import stat
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

pytest.importorskip("jinja2")
pytest.importorskip("waitress")

from waitress.adjustments import Adjustments

from queuedriver.errors import BadArgument, NotPermitted
from tests.cli.pipelines import call, driver, make, publish, report
from tests.page_inputs import KEYS, LOCAL, PREFIX, member
from tests.page_servers import Served, served
from tests.waiting import PATIENCE, is_alive, until
from tests.watchdogs import Yard
from watchdogd.cli.operators.serve import read_keys
from watchdogd.operators.actions import operator
from watchdogd.operators.view import pause_after
from watchdogd.operators.web import security, server, snapshot
from watchdogd.operators.web.page_inputs import Question, Site
from watchdogd.operators.web.respond import Request
from watchdogd.operators.web.server import listen_at
from watchdogd.operators.web.snapshot import Looker

LOOKING = [sys.executable, "-m", "watchdogd.cli.operators.looking"]


def reported(directory: Path, drivers: int = 0) -> Path:
    """A pipeline with a watchdog that lives, and so many drivers; the path of its file."""
    file = make(directory)
    names = (f"parse-{number}" for number in range(1, drivers + 1))
    publish(file, report(drivers=tuple(driver(one, document=one, state="busy") for one in names)))
    return file


@pytest.mark.slow
def test_socket_is_its_owners_and_the_line_that_leads_there_is_printed(tmp_path: Path) -> None:
    with served(reported(tmp_path), tmp_path) as page:
        found = os.stat(page.path)
        assert stat.S_ISSOCK(found.st_mode)
        assert stat.S_IMODE(found.st_mode) == 0o600
        assert page.path.startswith(str(tmp_path / "run"))
        page.wait_until_well()
        status, said = page.get("/")
        assert status == 200
        assert "<h1>serif" in said
        assert page.get("/", {})[1].count("serif") == 0
        # What is no request at all is told the same.
        with socket.socket(socket.AF_UNIX) as raw:
            raw.settimeout(PATIENCE)
            raw.connect(page.path)
            raw.sendall(b"GET / HTTP/1.1\r\nHost : x\r\n\r\n")
            assert b"default-src 'none'" in b"".join(iter(lambda: raw.recv(10_000), b""))


@pytest.mark.slow
def test_killing_it_leaves_nothing_that_runs_and_the_next_takes_its_place(tmp_path: Path) -> None:
    before = sorted((tmp_path).rglob("queues/**"))
    with served(reported(tmp_path), tmp_path) as page:
        page.wait_until_well()
        children = until(lambda: _children(page.process.pid))
        page.process.kill()
        until(lambda: not any(map(is_alive, children)), "the end of the process that looks")
    with served(reported(tmp_path), tmp_path) as page:
        page.wait_until_well()
        assert page.get("/")[0] == 200
    assert not [one for one in before if not one.exists()]


@pytest.mark.slow
def test_button_that_is_pressed_through_the_socket_is_noted_with_the_user_of_its_other_end(
    tmp_path: Path,
) -> None:
    file = reported(tmp_path)
    with served(file, tmp_path, "--allow-actions") as page:
        assert page.process.stdout is not None
        act = page.process.stdout.readline().partition("#")[2].strip()
        page.wait_until_well()
        status, headers, _ = page.post("/login", {"token": act})
        assert status == 303
        cookie = {"Cookie": headers["Set-Cookie"].partition(";")[0], "Host": "localhost"}
        form = re.search(r'name="form" value="([0-9a-f]+)"', page.get("/", cookie)[1])
        assert form
        status, _, _ = page.post("/do?do=pause&stage=parse", {"form": form[1]}, cookie)
        assert status == 303
        assert (tmp_path / "queues" / "values" / "PAUSE").exists()
        bearer = {"Authorization": f"Bearer {act}"}
        told = json.loads(page.get("/events.json", bearer)[1])["events"]
        assert told[0]["message"] == "pause parse"
        # As where it is typed.
        assert told[0]["who"] == operator()


@pytest.mark.slow
def test_nobody_may_change_anything_where_nobody_allowed_it(tmp_path: Path) -> None:
    with served(reported(tmp_path), tmp_path) as page:
        page.wait_until_well()
        (tokens,) = (tmp_path / "run").rglob("page.tokens")
        keys = read_keys(str(tokens))
        for token in keys:
            status, headers, _ = page.post("/login", {"token": token})
            assert status == 303
            cookie = {"cookie": headers["Set-Cookie"].partition(";")[0], "host": "localhost"}
            assert 'method="post"' not in page.get("/stage?name=parse", cookie)[1]
            form = {"form": security.session_of(cookie, keys).form}
            assert page.post("/do?do=pause&stage=parse", form, cookie)[0] == 403
        assert not list(tmp_path.rglob("PAUSE"))


@pytest.mark.slow
def test_nothing_but_files_is_needed(tmp_path: Path) -> None:
    with Yard(tmp_path) as yard:
        yard.write('name = "work"\ncall = "stages:shout"')
        yard.put("doc.txt")
        yard.run()
        with served(yard.file, tmp_path, environ=yard.environ) as page:
            page.wait_until_well()
            until(lambda: _done(page) == 1, "a document that is done")
            processes = [psutil.Process(pid) for pid in yard.all_pids()]
            # A watchdog, its helper and warden, a driver; a server, and what looks for it.
            assert len(processes) >= 6
            for one in processes:
                # No database, no broker, no port: nobody is connected to anything, nor listens.
                assert one.net_connections("inet") == []


def _done(page: Served) -> int:
    drivers = json.loads(page.get("/stage.json?name=work")[1])["drivers"]
    return sum(one["documents"] for one in drivers)


@pytest.mark.slow
def test_server_takes_40_mb_at_most(tmp_path: Path) -> None:
    with served(reported(tmp_path), tmp_path) as page:
        page.wait_until_well()
        for path in ("/", "/stage?name=parse", "/discarded", "/events", "/metrics"):
            assert page.get(path)[0] == 200
        peak = re.search(r"VmHWM:\s+([0-9]+) kB", _status_of(page))
        assert peak
        assert int(peak[1]) * 1024 <= 40_000_000


@pytest.mark.slow
def test_server_of_thousands_of_drivers_takes_40_mb_at_most(tmp_path: Path) -> None:
    with served(reported(tmp_path, drivers=4000), tmp_path) as page:
        page.wait_until_well()
        first = _seen_at(page)
        # What was seen before is kept until there is something newer.
        until(lambda: _seen_at(page) != first, "another look")
        peak = re.search(r"VmHWM:\s+([0-9]+) kB", _status_of(page))
        assert peak
        assert int(peak[1]) * 1024 <= 40_000_000


def _seen_at(page: Served) -> str:
    (said,) = re.findall(r'id="seen"[^>]*>([^<]+)<', page.get("/")[1])
    return str(said)


def _status_of(page: Served) -> str:
    return Path(f"/proc/{page.process.pid}/status").read_text()


@pytest.mark.slow
def test_what_is_too_long_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with served(reported(tmp_path), tmp_path) as page:
        page.wait_until_well()
        assert page.get("/?p=" + "x" * 5_000)[0] == 400
        assert page.get("/", {"Host": "localhost", "X-Long": "x" * 20_000})[0] in (400, 431)
        assert page.post_of_length("/login", 100_000) == 413
        assert page.get("/")[0] == 200


@pytest.mark.parametrize(
    "words",
    [
        ["--address", "0.0.0.0"],
        ["--address", "0.0.0.0", "--port", "0"],
        ["--address", "0.0.0.0", "--port", "0", "--behind-proxy"],
        ["--address", "0.0.0.0", "--port", "0", "--tokens", "tokens"],
        ["--port", "65536"],
    ],
)
def test_no_address_but_of_this_host_without_a_proxy_and_tokens(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    called = call(capsys, "serve", reported(tmp_path), *words)
    assert called.code == 2
    assert words[0] in called.err


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        # A thread that has ended meanwhile.
        with suppress(FileNotFoundError, ProcessLookupError):
            found += map(int, task.read_text().split())
    return found


@contextmanager
def looker(*words: str) -> Iterator[Looker]:
    one = Looker("serif", list(words))
    try:
        yield one
    finally:
        one.close()


def test_fifty_who_watch_cost_one_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # All of them come before it is time for another.
    monkeypatch.setattr(snapshot, "pause_after", lambda took: 3600.0)
    with looker(*LOOKING, str(reported(tmp_path))) as one:
        until(lambda: one.latest().seen)
        assert one.looks == 1
        one._looked_at -= 3600
        watching = [threading.Thread(target=one.latest) for _ in range(50)]
        for thread in watching:
            thread.start()
        for thread in watching:
            thread.join()
        assert one.looks == 2


def test_thousands_of_drivers_are_seen_each_once_and_in_their_order(tmp_path: Path) -> None:
    names = [f"parse-{number}" for number in range(1, 1204)]
    with looker(*LOOKING, str(reported(tmp_path, drivers=1203))) as one:
        first = until(lambda: one.latest().seen)
        one._looked_at -= 60
        again = until(lambda: (found := one.latest().seen) is not first and found)
        for seen in (first, again):
            assert seen
            assert [driver.name for driver in seen.view.drivers] == names


@pytest.mark.parametrize("took", [0.0, 0.05, 0.33, 60.0])
def test_looking_takes_a_twentieth_of_the_time_at_most(took: float) -> None:
    assert pause_after(took) >= 1.0
    assert took <= (took + pause_after(took)) / 20


def test_nobody_who_watches_means_nobody_who_looks(tmp_path: Path) -> None:
    with looker(*LOOKING, str(make(tmp_path))) as one:
        assert one.looks == 0
        assert one._process is None


# Takes longer for a look than anybody waits for a newer one.
_SLOW = """
import sys, time
from watchdogd.cli.pipeline_argument import choose
from watchdogd.cli.operators.looking import run
run(int(sys.argv[2]), lambda: time.sleep(1.3) or choose(sys.argv[1]))
"""


def test_whoever_comes_seldom_waits_for_a_slow_look_and_is_not_told_that_nothing_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # That he waits for longer, and not how long it is, where a busy machine makes a look still
    # slower.
    monkeypatch.setattr(snapshot, "_FIRST", PATIENCE)
    with looker(sys.executable, "-c", _SLOW, str(reported(tmp_path))) as one:
        seen = until(lambda: one.latest().seen)
        one._looked_at -= 60
        one._full_at -= 60
        assert one.latest().seen is not seen
        assert one.latest().age < 60


def test_whoever_brings_wrong_tokens_shuts_out_nobody_else() -> None:
    page = server.Served(Site(KEYS, PREFIX), {})
    right, wrong = ({**LOCAL, "authorization": f"Bearer {key}"} for key in (KEYS.read, "wrong"))

    def ask(headers: dict[str, str], peer: str) -> int:
        request = Request("GET", f"{PREFIX}/health.json", headers=headers, peer=peer)
        return page.answer(request).status

    assert [ask(wrong, "127.0.0.1") for _ in range(11)] == [401] * 10 + [429]
    assert ask(right, "127.0.0.1") == 429
    assert ask(right, "user 1000 (ann)") == 200


def test_wrong_token_that_comes_while_others_are_counted_fails_no_request() -> None:
    page = server.Served(Site(KEYS, PREFIX), {})
    wrong = {**LOCAL, "authorization": "Bearer wrong"}

    class Peer(str):
        """Somebody; whenever it is asked who that is, another token comes in."""

        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            page._wrong.append((0.0, "other"))
            return str.__eq__(self, other)

    for peer in ("ann", Peer("ann")):
        request = Request("GET", f"{PREFIX}/health.json", headers=wrong, peer=peer)
        assert page.answer(request).status == 401


_SILENT = "import sys, time; time.sleep(3600)"


def test_who_asks_what_hangs_has_an_answer_all_the_same() -> None:
    with looker(sys.executable, "-c", _SILENT) as one:
        assert one.latest().seen is None
        answer = one.ask(Question("serif", "events"))
        assert answer.status == 503
        assert "does not answer" in answer.error


def test_whoever_changes_what_hangs_is_told_that_it_may_be_done_later() -> None:
    with looker(sys.executable, "-c", _SILENT) as one:
        answer = one.ask(Question("serif", "act"))
        assert (answer.status, "it may be done once it does" in answer.error) == (503, True)
        # Now nothing is asked that waits for an answer for longer than anybody does.
        assert "may be done" not in one.ask(Question("serif", "act")).error


# Hangs for ever when it is started first.
_HANGS_ONCE = """
import os, sys, time
from watchdogd.cli.pipeline_argument import choose
from watchdogd.cli.operators.looking import run
if not os.path.exists(sys.argv[2]):
    open(sys.argv[2], "w").close()
    time.sleep(3600)
run(int(sys.argv[3]), lambda: choose(sys.argv[1]))
"""


def test_process_that_hangs_is_replaced_also_where_nothing_but_looks_is_asked_for(
    tmp_path: Path,
) -> None:
    hung = tmp_path / "hung"
    with looker(sys.executable, "-c", _HANGS_ONCE, str(reported(tmp_path)), str(hung)) as one:
        one.begin()
        until(hung.exists, "it hangs")
        # As if that had been an hour ago.
        one._asked = dict.fromkeys(one._asked, time.monotonic() - 3600)
        one._may_start_at = 0.0
        assert until(lambda: one.latest().seen)


@pytest.mark.parametrize("kind", ["look", "put_back"])
def test_process_that_takes_long_comes_to_its_end_though_others_watch(
    tmp_path: Path, kind: str
) -> None:
    """A look that nobody else asks after, or a change of many documents amid which it is not to
    be cut off."""
    with looker(sys.executable, "-c", _SILENT) as one:
        if kind == "look":
            one.begin()
        else:
            assert one.ask(Question("serif", kind)).status == 503
        process = one._process
        assert process is not None
        # As if that had been a minute ago.
        one._asked = dict.fromkeys(one._asked, time.monotonic() - 60)
        one.begin()
        if kind != "look":
            assert one.ask(Question("serif", "events")).status == 503
        assert one._process is process


def test_question_that_nobody_takes_keeps_no_other_waiting() -> None:
    with looker(sys.executable, "-c", _SILENT) as one:
        # More than a socket holds.
        answer = one.ask(Question("serif", "survey", {"text": "x" * 10_000_000}))
        assert answer.status == 503
        assert one.ask(Question("serif", "events")).status == 503


def test_pipelines_that_hang_are_waited_for_together_and_by_nobody_who_asks_of_another(
    tmp_path: Path,
) -> None:
    silent = 8
    words = [[sys.executable, "-c", _SILENT]] * silent + [[*LOOKING, str(reported(tmp_path))]]
    with ExitStack() as opened:
        lookers = {f"p{at}": opened.enter_context(looker(*one)) for at, one in enumerate(words)}
        for name, one in lookers.items():
            one.name = name
        page = server.Served(Site(KEYS, PREFIX), lookers)
        until(lambda: lookers[f"p{silent}"].latest().seen)
        request = Request("GET", f"{PREFIX}/", f"p=p{silent}", member())
        assert page.answer(request).status == 200
        assert [one.looks for one in lookers.values()][:silent] == [0] * silent
        began = time.monotonic()
        assert page.answer(request._replace(query="")).status == 200
        # One after the other they are waited for for 24 s.
        assert time.monotonic() - began < 20.0


# Ends when it is asked anything.
_ENDS = "import os, sys; os.read(int(sys.argv[-1]), 1)"


@pytest.mark.parametrize("kind", ["events", "act"])
def test_process_that_ends_is_noticed_at_once_and_not_taken_for_files_that_hang(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However slowly it starts.
    monkeypatch.setattr(snapshot, "_PATIENCE", PATIENCE)
    with looker(sys.executable, "-c", _ENDS) as one:
        answer = one.ask(Question("serif", kind))
        assert answer.status == 503
        assert "has ended, and another is to be started" in answer.error
        assert ("whether that was done before" in answer.error) == (kind == "act")
        assert "has ended" in one.latest().error


def test_process_that_has_ended_is_soon_replaced_also_where_a_question_finds_that_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As if the thread that listens to it had no time.
    monkeypatch.setattr(Looker, "_listen", lambda *_: None)
    with looker(sys.executable, "-c", _ENDS) as one:
        one.begin()
        process = one._process
        assert process is not None
        process.wait(PATIENCE)
        # However long that took.
        one._asked.clear()
        assert "has ended" in one.ask(Question("serif", "events")).error
        assert one._may_start_at < time.monotonic() + 10


def test_request_that_comes_byte_by_byte_has_no_more_time_than_another() -> None:
    ours, theirs = socket.socketpair()
    tasks: list[object] = []
    served = SimpleNamespace(active_channels={}, add_task=tasks.append)
    with ours, theirs:
        channel = server._Channel(served, theirs, ("", None), Adjustments(), map={})
        ours.send(b"G")
        channel.handle_read()
        channel.last_activity = 1.0
        for byte in b"ET / HTTP/1.1\r\nHost: localhost\r\n\r":
            ours.send(bytes([byte]))
            channel.handle_read()
            assert channel.last_activity == 1.0
        ours.send(b"\n")
        channel.handle_read()
        assert tasks == [channel]
        assert channel.last_activity > 1.0


def test_answer_that_is_taken_bit_by_bit_has_no_more_time_than_its_length_allows() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(PATIENCE)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        channel = server._Channel(
            SimpleNamespace(active_channels={}, pull_trigger=list),
            theirs,
            ("", None),
            Adjustments(),
            map={},
        )
        channel.write_soon(bytes(1_000_000))
        taken = 0
        channel.last_activity = 1.0
        while taken < 200_000:
            taken += len(ours.recv(1000))
            channel.handle_write()
        sent = 1_000_000 - channel.total_outbufs_len
        assert 1.0 < channel.last_activity <= 1.0 + sent / 10_000


@pytest.mark.slow
def test_requests_that_come_at_once_are_one_and_no_thread_waits_for_their_reader(
    tmp_path: Path,
) -> None:
    with served(reported(tmp_path), tmp_path) as page, socket.socket(socket.AF_UNIX) as raw:
        raw.settimeout(PATIENCE)
        raw.connect(page.path)
        one = f"GET {page.prefix}/style.css HTTP/1.1\r\nHost: localhost\r\n\r\n"
        raw.sendall(one.encode() * 10)
        said = b"".join(iter(lambda: raw.recv(10_000), b""))
        assert said.count(b"HTTP/1.1 200") == 1
        assert b"Connection: close" in said


@pytest.mark.parametrize(
    ("path", "host"),
    [("/", "evil.example"), ("/style.css", "localhost"), ("/no", "localhost"), ("x/", "localhost")],
)
def test_nothing_is_looked_at_for_who_calls_us_by_another_name_or_wants_no_page(
    path: str, host: str
) -> None:
    site = Site(KEYS, PREFIX)
    with looker(sys.executable, "-c", _SILENT) as one:
        request = Request("GET", PREFIX + path, headers={**member(), "host": host})
        assert server.Served(site, {"serif": one}).answer(request).status in (200, 404, 421)
        assert one.looks == 0


@pytest.mark.slow
def test_whoever_holds_all_connections_of_the_port_keeps_nobody_from_the_socket(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with served(reported(tmp_path), tmp_path, "--port", str(port)) as page, ExitStack() as held:
        for _ in range(130):
            held.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE))
        began = time.monotonic()
        assert page.get("/style.css")[0] == 200
        # Before the first of them are too old.
        assert time.monotonic() - began < 15


@pytest.mark.slow
def test_behind_a_proxy_its_address_is_printed_and_who_acts_is_whom_it_speaks_for(
    tmp_path: Path,
) -> None:
    words = ("--port", "0", "--behind-proxy", "--host", "page.example", "--allow-actions")
    with served(reported(tmp_path), tmp_path, *words) as page:
        told = page.process.stdout
        assert told is not None
        lines = [told.readline() for _ in range(3)]
        assert lines[0].startswith(f"to look:          https://page.example{page.prefix}/#")
        token = lines[2].strip().partition(f"https://page.example{page.prefix}/#")[2]
        page.wait_until_well()
        there = {"Host": "page.example", "X-Forwarded-For": "10.1.2.3, 192.0.2.7"}
        origin = {"Origin": "https://page.example"}
        proxied = page._replace(path="")
        status, headers, _ = proxied.post("/login", {"token": token}, {**there, **origin})
        assert status == 303
        there["Cookie"] = headers["Set-Cookie"].partition(";")[0]
        form = re.search(r'name="form" value="([0-9a-f]+)"', proxied.get("/", there)[1])
        assert form
        asked = proxied.post("/do?do=pause&stage=parse", {"form": form[1]}, {**there, **origin})
        assert asked[0] == 303
        events = json.loads(page.get("/events.json", {"Authorization": f"Bearer {token}"})[1])
        assert events["events"][0]["who"] == "192.0.2.7"


# Tokens


def test_tokens_are_made_once_and_nobody_else_can_read_them(tmp_path: Path) -> None:
    path = str(tmp_path / "tokens")
    keys = read_keys(path)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert read_keys(path) == keys
    assert len(bytes.fromhex(keys.read)) * 8 == 128
    assert keys.read != keys.act


def test_file_of_tokens_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    read_keys(str(path))
    path.chmod(0o640)
    with pytest.raises(NotPermitted, match="chmod 600"):
        read_keys(str(path))


@pytest.mark.parametrize("text", ["", "read short\nact short", "read " + "x" * 20, "\xff" * 40])
def test_file_without_two_tokens_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(BadArgument, match="two tokens"):
        read_keys(str(path))


def test_second_server_does_not_take_the_socket_of_the_first(tmp_path: Path) -> None:
    path = str(tmp_path / "sock")
    with listen_at(path) as first:
        first.listen()
        with pytest.raises(FileExistsError, match="already"):
            listen_at(path)
    with listen_at(path):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_file_that_is_no_socket_is_neither_replaced_nor_removed(tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    for path in (notes, tmp_path):
        with pytest.raises(FileExistsError, match="no socket"):
            listen_at(str(path))
    assert notes.read_text() == "mine"
    assert [one.name for one in tmp_path.iterdir()] == ["notes.txt"]
