"""Driving: one loop that claims, processes and hands over.

driver.py         a driver: start; claim and turn, or pause, until there is a reason to leave. Read
                  this first
setup.py          what must be so before the first claim
life.py           how drivers and brokers come and go: registered, shown, the last word
loop.py           the looks and pauses of a driver and of a broker, and trouble with the file system
plan.py           whether to wait, and how long, or to leave; pure
group.py          finished documents of a durable queue that wait for one sync
breaker.py        whether the stage stops itself, as its documents all fail for one cause
backpressure.py   whether the outputs take more, and whether anybody empties them
recycling.py      when a driver has done enough
time_left.py      what fits into the time until a driver is to be gone
limits.py         how long a document may take, and how a driver is asked to leave
signals.py        what signals ask of a process: they only record
wake.py           how an idle driver waits: hints, signals, naps
closing.py        control files, and when a queue is done
counted.py        what is counted of documents: how long they waited and took, why they failed; pure
live_status.py    what a driver does right now, counted and shown
"""
