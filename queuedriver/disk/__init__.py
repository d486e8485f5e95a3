"""The file system, and what every process of ours keeps there: journals, stacks, landmarks."""
