"""The fuq protocol: clients with processors run tasks of jobs.

wire         messages; auth: the shared secret; tables: transition tables
broker       a broker's session: its clients, and which task goes to whom
client       a client's session; life: its loop; runner: tasks as child processes
"""
