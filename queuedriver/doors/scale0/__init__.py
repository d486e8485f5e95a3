"""The scale0 protocol: services, requests, workers that hear of other brokers.

broker  what a broker knows of a worker: the table, and the session (read this first)
wire    messages
worker, client  the other sides
"""
