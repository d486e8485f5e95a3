"""The pingpong protocol: a worker says it is there, gets a document, answers with its outputs.

wire      frames
sessions  tables, the broker's session and the worker's
"""
