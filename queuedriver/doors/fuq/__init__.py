"""The fuq protocol: clients with processors run tasks of jobs.

wire         messages; auth: the shared secret; tables: transition tables
broker       a broker's session; broker_life: its loop; roster: its clients, and whose turn it is
client       a client's session; client_life: its loop; runner: tasks as child processes
"""
