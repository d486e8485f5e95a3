"""The round-robin protocol: workers with slots, clients, a broker that goes round.

broker     what is said in which order, the broker's table and its session (read this first)
worker     a worker's, and a server's that has no broker; client: a client's
wire       one message, its frames and what they mean, and documents as messages
stream     an answer in parts
settings   what each of them is told; console: told by hand
"""
