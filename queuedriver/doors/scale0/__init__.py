"""The scale0 protocol: services, requests, workers that hear of other brokers.

tables    transition tables and options
wire      messages
requests  the states of clients' requests
broker, worker, client  a session each
"""
