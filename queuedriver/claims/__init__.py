"""Claims: what to try next, who has what, and how each attempt ends."""
