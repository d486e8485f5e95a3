"""What a process holds; apart, so that reading it imports nothing that counts itself."""

from pathlib import Path


def peak_rss(pid: int) -> int:
    """The most memory a process has held, in bytes.

    Not getrusage's: that begins with what the parent held when it forked.
    """
    status = Path(f"/proc/{pid}/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(peak.split()[1]) * 1024
