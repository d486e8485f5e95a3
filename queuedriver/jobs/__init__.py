"""Jobs of many tasks, in a queue.

jobfile   what a job asks for
job       a job's tasks as items; outcomes: what became of each
foreman   which task is dealt next
control   status, hold, release, cancel, stop
"""
