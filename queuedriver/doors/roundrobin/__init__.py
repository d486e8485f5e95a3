"""The round-robin protocol: workers with slots, clients, a broker that goes round.

tables     the transition tables: what is said, in which order (read this first)
frames     one message, its frames and what they mean
documents  a document and its outcome as messages; stream: an answer in parts
broker, worker, client  a session each; settings: what each is told
console    the terminals of all three
"""
