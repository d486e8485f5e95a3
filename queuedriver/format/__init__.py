"""What is written on disk, and how people write it; all of it pure.

names.py      the names of items: formed and parsed here and nowhere else. Read this first
records.py    JSON that anybody may have written: attempts, reports, plans, registrations, journals
settings.py   what the drivers of a queue agreed on
units.py      durations, sizes and instants as people write them
"""
