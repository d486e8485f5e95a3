"""Claims: what to try next, who has what, and how each attempt ends.

input_queue   one open queue: names that wait → claims → their ends
waiting       the names that are to be tried next, listed a few at a time
picking       in which order, and which of them are left to other drivers
document      what a processor sees of a claim
outputs       what a claim writes before it commits
handoff       the names on disk that a claim goes through; commit, publish, finish
outcomes      how an attempt ends: done, failed, later or released; pure
charging      what an attempt that is not done costs, and whether the disk is to blame
attempts      what is remembered of attempts, and the report that it becomes
liveness      who a claim is of, and whether it lives
heartbeat     how a driver shows that it lives
recovery      what becomes of the claims of the dead
leftovers     what else crashes leave, and when it goes
"""
