"""What is written on disk: the names of items, the records in JSON, and the units people write."""
