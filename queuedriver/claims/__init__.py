"""Claims: what to try next, who has what, and how each attempt ends.

input_queue.py   one open input queue: claims, and how each ends. Read this first
counts.py        how many items of a queue are in each state; pure
picking.py       the names that are tried next, in which order, and who takes which
document.py      what a processor sees of a claimed item, and what it writes before the commit
handoff.py       the names on disk that a claim goes through, with one commit point
outcomes.py      how an attempt ends: done, failed, later or released; pure
charging.py      what an attempt costs that is not done
attempts.py      what is remembered of attempts, and the report that it becomes
liveness.py      which drivers a queue has, which of them are alive, and how each shows it
recovery.py      what dead drivers had in hand is finished or taken back
leftovers.py     what nobody would ever look at again: one table
"""
