"""Driving: one loop that claims, processes and hands over. `driver` is to be read first."""
