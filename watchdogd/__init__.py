"""Keeps drivers alive and chains stages into pipelines."""
