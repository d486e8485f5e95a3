"""Operating a queue: submitting, looking, and moving documents by hand."""
