"""The file system, and what every process of ours keeps there.

filesystem.py   an open directory, and the dozen calls that the protocol makes. Read this first
lock.py         the lock of a file, held by one process at a time
mounts.py       which kind of file system a path is on, and whether other hosts may change it
journal.py      what happened to documents: lines of JSON, a file for each writer
neighbours.py   whether an output is the directory that it was, and which queues feed a queue
runtime.py      this host's directory for stacks: why a driver was ended
processes.py    the processes of this host: what the dead left running, what the living take
"""
