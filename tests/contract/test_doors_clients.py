"""What may befall those who ask at a front door, and what becomes of their requests."""

from tests.contract.door_scene import Door


def test_client_that_asks_is_answered_once(door: Door) -> None:
    door.broker()
    client = door.client()
    client.asks("question")
    worker = door.worker()
    worker.answers(worker.gets("question"))
    door.until(lambda: client.is_answered("question"), "it is answered")
    door.turns()
    assert client.answers() == []
    assert door.leave() == 0
    assert door.states() == {}


def test_client_that_is_back_within_a_minute_gets_its_answer(door: Door) -> None:
    door.broker()
    client = door.client()
    client.asks("question")
    worker = door.worker()
    dealt = worker.gets("question")
    client.vanish()
    door.turns()
    worker.answers(dealt)
    door.until(lambda: door.states() == {}, "it is finished")
    door.later(20)
    client.connect()
    client.knocks()
    door.until(lambda: client.is_answered("question"), "it is answered")


def test_request_that_is_repeated_is_done_once(door: Door) -> None:
    door.broker()
    client = door.client()
    worker = door.worker(slots=2)
    client.asks("question")
    dealt = worker.gets("question")
    client.asks("question")
    door.turns()
    assert worker.has() == ["question"]
    worker.answers(dealt)
    door.until(lambda: client.is_answered("question"), "it is answered")
    client.asks("question")
    door.until(lambda: client.is_answered("question"), "it is answered once more")
    assert worker.has() == []


def test_request_outlives_its_broker(door: Door) -> None:
    door.broker()
    client = door.client()
    client.asks("question")
    worker = door.worker()
    worker.gets("question")
    door.kill()
    door.broker()
    again = door.worker("again")
    door.until(lambda: again.has() or worker.has(), "it is dealt anew")
    client.connect()
    again.answers(again.gets("question"))
    client.knocks()
    door.until(lambda: client.is_answered("question"), "it is answered")
    assert door.leave() == 0
    assert door.states() == {}


def test_request_whose_worker_is_killed_is_dealt_to_another(door: Door) -> None:
    door.broker()
    client = door.client()
    client.asks("question")
    worker = door.worker("killed")
    worker.gets("question")
    door.lose(worker)
    another = door.worker("another")
    another.answers(another.gets("question"))
    door.until(lambda: client.is_answered("question"), "it is answered")


def test_request_that_never_reached_its_worker_is_dealt_to_another(door: Door) -> None:
    door.broker()
    client = door.client()
    for number in range(3):
        door.worker(f"gone{number}").vanish()
    client.asks("question")
    door.turns()
    another = door.worker("another")
    another.answers(another.gets("question"))
    door.until(lambda: client.is_answered("question"), "it is answered")


def test_request_whose_workers_are_all_killed_is_refused_in_the_end(door: Door) -> None:
    door.broker(retries=1)
    client = door.client()
    client.asks("question")
    for number in range(2):
        worker = door.worker(f"w{number}")
        worker.gets("question")
        door.lose(worker)
        if number == 0:
            door.until(lambda: "failed 1" in door.states().values(), "it has cost a worker")
    door.until(client.is_refused, "the client is told")
    client.asks("question")
    door.until(client.is_refused, "it is told so again")
    assert door.states() == {}


def test_request_that_no_worker_takes_in_time_is_refused(door: Door) -> None:
    door.broker()
    client = door.client()
    client.asks("question")
    door.until(door.states, "it is kept")
    door.later(36)
    if door.differs:
        assert client.answers() == []
        worker = door.worker()
    else:
        door.until(client.is_refused, "the client is told")
        assert door.states() == {}
        worker = door.worker("late")
        door.turns()
        assert worker.has() == []
        client.asks("question")
    worker.answers(worker.gets("question"))
    door.until(lambda: client.is_answered("question"), "it is answered")
