"""How much to measure, and beside which other commit: one frozen set, passed whole."""

from dataclasses import dataclass

from benchmarks.checkout import Checkout


@dataclass(frozen=True)
class Scale:
    against: Checkout | None = None
    rounds: int = 15
    long_rounds: int = 5  # of the workloads whose rounds take many seconds
    documents: int = 4_000
    durable_documents: int = 300
    shared_documents: int = 20_000
    drivers: tuple[int, ...] = (1, 2, 4, 8)
    nfs_documents: int = 2_000
    nfs_rounds: int = 3
    backlogs: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    claims: int = 5_000  # how many of a backlog are claimed per sample
    wakes: int = 100
    idle_seconds: float = 20.0
    idle_workers: int = 1_000
    turns: int = 1_000  # requests of one client, one after the other
    starts: int = 20
    commands: int = 2_000
    command_drivers: tuple[int, ...] = (2, 4)
    template_crashes: int = 10
    models: tuple[int, ...] = (1 << 26, 1 << 30, 4 << 30)  # bytes loaded
    shared_model: int = 1 << 30
    sharers: int = 8
    crashes: int = 4  # in each of so many rounds
    crash_rounds: int = 3
    overhead_seconds: float = 15.0
    overhead_rounds: int = 1
    pipeline_documents: int = 20_000
    balance_trials: int = 200  # documents for each split
    balance_documents: int = 1_200
    balance_rounds: int = 3
    virtual_documents: int = 6_000
    nodes: tuple[int, ...] = (10, 100, 300, 1000)
    alternatives_documents: int = 2_000
    alternatives_commands: int = 300
    alternatives_wakes: int = 10
    crowd_stages: int = 20
    crowd_each: int = 25
    crowd_terms: int = 5
    crowd_rounds: int = 1
    page_stages: int = 20
    page_drivers: int = 200


QUICK = Scale(
    rounds=3,
    long_rounds=3,
    documents=500,
    durable_documents=50,
    shared_documents=2_000,
    drivers=(1, 2),
    nfs_documents=400,
    nfs_rounds=1,
    backlogs=(1_000, 10_000),
    claims=1_000,
    wakes=10,
    idle_seconds=2.0,
    idle_workers=100,
    turns=100,
    starts=5,
    commands=200,
    command_drivers=(2,),
    template_crashes=5,
    models=(1 << 26,),
    shared_model=1 << 26,
    sharers=4,
    crashes=2,
    crash_rounds=1,
    overhead_seconds=5.0,
    pipeline_documents=2_000,
    balance_trials=40,
    balance_documents=400,
    balance_rounds=1,
    nodes=(2, 10),
    alternatives_documents=500,
    alternatives_commands=100,
    alternatives_wakes=5,
    crowd_stages=4,
    crowd_each=5,
    crowd_terms=2,
)
