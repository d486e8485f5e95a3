"""The fuq protocol: clients with processors run tasks of jobs.

wire         messages, and the proof that both sides know a secret
broker       the broker's table, and its session: its clients, and which task goes to whom
client       the client's; runner: its loop, and tasks as child processes
settings     what both are told
"""
