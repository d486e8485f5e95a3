"""The balance beside every fixed split, in virtual time, by the decisions of watchdogd itself."""

import pytest

from benchmarks.balance_virtual import SHAPES, Flow, Shape, fixed_splits

DOCUMENTS = 6_000


@pytest.mark.slow
# How much longer than the best fixed split it may take; where the work moves, no fixed one fits.
@pytest.mark.parametrize(("shape", "most"), list(zip(SHAPES, (1.06, 0.8), strict=True)))
def test_the_balance_is_near_the_best_fixed_split_and_beats_all_where_work_moves(
    shape: Shape, most: float
) -> None:
    best = min(Flow(shape.parts, DOCUMENTS, split).run() for split in fixed_splits(shape.parts))
    assert Flow(shape.parts, DOCUMENTS, None).run() <= most * best


def test_all_documents_flow_through_whatever_the_split() -> None:
    flow = Flow(SHAPES[0].parts, 100, {"values": 1, "parse": 1, "output": 1})
    # The slowest stage takes 1.5 s a document; the others wait for it.
    assert 150 <= flow.run() <= 160
    assert flow.queues == pytest.approx([0, 0, 0, 100])
