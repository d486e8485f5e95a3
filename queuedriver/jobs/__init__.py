"""Jobs of many tasks, in a queue.

jobfile     what a job asks for, and the documents that come of it
job         one job and its tasks: dealt by one broker at a time, each ended once. Read this first
outcomes    how each task ended
scheduler   all jobs of a broker: which task is dealt next
control     status, hold, release, cancel, stop: by files
"""
