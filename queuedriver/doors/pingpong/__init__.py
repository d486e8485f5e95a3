"""The pingpong protocol: a worker says it is there, gets a document, answers with its outputs.

protocol   its frames, and what a broker and a worker make of them: a table and a session each
settings   what both are told
"""
