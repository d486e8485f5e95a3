"""The pingpong protocol: a worker says it is there, gets a document, answers with its outputs.

wire    frames; settings: what both sides are told
broker  what a broker knows of a worker: the table, and the session (read this first)
worker  the other side
"""
