"""Driving: one loop that claims, processes and hands over.

driver.py         a driver: start; claim and turn, or pause, until there is a reason to leave. Read
                  this first
setup.py          what must be so before the first claim
loop.py           what a driver shares with a broker: looks, pauses, trouble with the file system;
                  and how they come and go: registered, shown, the last word
plan.py           whether to wait, and how long, or to leave; pure
group.py          finished documents of a durable queue that wait for one sync
breaker.py        whether the stage stops itself, as its documents all fail for one cause
backpressure.py   whether the outputs take more, and whether anybody empties them
lifetime.py       how long a driver goes on: until it has done enough, or its time ends
limits.py         how long a document may take, and how a driver is asked to leave
signals.py        what signals ask of a process: they only record
wake.py           how an idle driver waits: hints, signals, naps
closing.py        control files, and when a queue is done
measurements.py  what is counted of documents: how long they waited and took, why they failed; pure
live_status.py    what a driver does right now, counted and shown
"""
