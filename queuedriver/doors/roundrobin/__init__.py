"""The round-robin protocol: workers with slots, clients, a broker that goes round.

tables     transition tables and options
frames     messages; documents: documents as messages; stream: a stream of them
broker, worker, client  a session each
console_*  the terminals of all three
"""
