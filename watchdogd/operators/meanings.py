"""Says what the word for each state means; docs/states.rst has more of it. Pure."""

from collections.abc import Mapping

MEANINGS: Mapping[str, str] = {
    # Of drivers.
    "starting": "the process is there and loads; it claims nothing yet",
    "ready": "it is loaded, and there is nothing to claim",
    "busy": "a document is at hand",
    "draining": "it finishes the document at hand and leaves, because it was asked to",
    "stopped": "it has no process; beside it stands why",
    "blocked": "it waits for room in what it publishes into: the stage behind does not keep up",
    "backoff": "its last runs finished nothing, and it waits for a moment before the next",
    "waiting-fs": "the file system of the queues is not well; it goes on by itself when that is",
    "crash-looped": "run after run finished nothing: read its log, mend that, and restart it",
    "hung": "it took longer than its time-out, and is ended now, with its stacks in the report",
    "unkillable": "it was killed and has not ended: it waits in the kernel, mostly for a disk",
    "dead": "its process has ended, and what it had at hand was not taken back yet",
    "lost": "it has shown no life for its lease: its host is down, or cut off",
    "silent": "it is on another host, has shown no life for a while, and may live all the same",
    # Of stages.
    "degraded": "half of its drivers are crash-looped, or what they fork from cannot be killed",
    "paused": "what is at hand is finished, and nothing is claimed before somebody resumes it",
    "tripped": "documents failed one after the other for one cause, and it has stopped itself: "
    "mend that, and resume; it tries one now and then, and goes on when that is done",
    "quit": "there is a QUIT in one of its queues: its drivers leave, and resume has them back",
    "done": "its queues were closed, and are empty",
    "late": "what it would begin would not be done before the time of its watchdog ends",
    "at work": "documents are at hand",
    "waits": "files are in its folder, and are not taken yet",
    "idle": "nothing is at hand",
    "unknown": "that cannot be known from here",
}
