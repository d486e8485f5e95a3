"""The conversation of fuq as two tables of data: the client's and the server's. Pure.

The rows that the protocol's own description does not have are ours: they say what becomes of
messages that cross, of a secret, and of tasks that take too long.
"""

from queuedriver.doors.table import ELSE, SAME, Row, Table, ours

# The state of a conversation that is over.
END = "the end"

# Conditions, where a state has several rows for one event.
FITS = "job_nproc <= nproc"
NOW = "n is immediate"
EMPTY = "max_nproc is 0, nothing runs"
MORE = "more reports wait"
ROOM = "fewer than max_proc wait"
RUNS = "the task runs already"
PENDING = "npending > 0"
HOLDS = "the proof holds"

_GREETING = "CL_AUTH0 | CL_AUTH1 | CL_INIT0 | CL_INIT1"
_LOWER = "max_nproc = max(0, max_nproc - n), of STOP(0) 0"

CLIENT = Table(
    "the client",
    [
        ours("CL_AUTH0", "AUTH(nonce)", "", "send AUTH(nonce, proof)", "CL_AUTH1"),
        ours("CL_AUTH0", "OK", "", "leave: it asks for no secret", "CL_EXIT0"),
        ours("CL_INIT0", "AUTH(nonce)", "", "leave: it asks for a secret", "CL_EXIT0"),
        ours("CL_AUTH1", "AUTH(proof)", HOLDS, "nothing", "CL_INIT0"),
        ours("CL_AUTH1", "AUTH(proof)", ELSE, "leave: not our broker", "CL_EXIT0"),
        Row("CL_INIT0", "OK", "", "send OK(nproc)", "CL_INIT1"),
        Row("CL_INIT1", "OK", "", "nothing", "CL_LOOP0"),
        Row("CL_LOOP0", "JOB", FITS, "nproc -= job_nproc, start job", "CL_LOOP0"),
        Row("CL_LOOP0", "JOB", ELSE, "send ERROR(cannot_run_job), report it", "CL_LOOP0"),
        ours("CL_LOOP0", "JOB", RUNS, "nothing", "CL_LOOP0"),
        Row("CL_LOOP0", "STOP", NOW, "kill the tasks", "CL_EXIT1"),
        Row("CL_LOOP0", "STOP", ELSE, _LOWER, "CL_LOOP0"),
        ours(f"{_GREETING} | CL_LOOP0", "STOP", EMPTY, "max_nproc = 0", "CL_EXIT0"),
        Row("CL_LOOP0", "job done", "", "nproc = max(0, max_nproc - running)", "CL_UPDATE0"),
        ours("CL_LOOP0", "OK", "", "a ping: nothing", "CL_LOOP0"),
        Row("CL_UPDATE0", "", "", "send UPDATE(nproc)", "CL_UPDATE1"),
        Row("CL_UPDATE1", "OK", EMPTY, "nothing", "CL_EXIT0"),
        Row("CL_UPDATE1", "OK", ELSE, "take up the jobs that wait", "CL_LOOP0"),
        ours("CL_UPDATE1", "OK", MORE, "take up the jobs that wait", "CL_UPDATE0"),
        ours("CL_UPDATE1", "JOB", ROOM, "it waits for OK", "CL_UPDATE1"),
        ours("CL_UPDATE1", "JOB", ELSE, "send ERROR(overflow), report it", "CL_UPDATE1"),
        ours("CL_UPDATE1", "STOP", NOW, "kill the tasks", "CL_EXIT1"),
        ours("CL_UPDATE1", "STOP", ELSE, _LOWER, "CL_UPDATE1"),
        ours("CL_UPDATE1", "job done", "", "its report waits for OK", "CL_UPDATE1"),
        ours(f"{_GREETING} | CL_LOOP0 | CL_UPDATE1", "ERROR", "", "note it", SAME),
        Row("CL_EXIT0", "", "", "normal exit", END),
        Row("CL_EXIT1", "", "", "immediate exit", END),
    ],
)

SERVER = Table(
    "the server",
    [
        ours("SV_AUTH0", "", "", "send AUTH(nonce)", "SV_AUTH1"),
        ours("SV_AUTH1", "AUTH(nonce, proof)", HOLDS, "send AUTH(proof)", "SV_INIT0"),
        ours("SV_AUTH1", "AUTH(nonce, proof)", ELSE, "send ERROR", "SV_EXIT"),
        Row("SV_INIT0", "", "", "send OK(0)", "SV_INIT1"),
        Row("SV_INIT1", "OK", "", "record nproc = n", "SV_INIT2"),
        Row("SV_INIT2", "", "", "send OK(nproc)", "SV_LOOP0"),
        Row("SV_LOOP0", "", "", "request npending <= nproc pending tasks", "SV_LOOP1"),
        Row("SV_LOOP1", "", PENDING, "send JOB", "SV_LOOP2"),
        Row("SV_LOOP1", "", ELSE, "nothing", "SV_LOOP2"),
        Row("SV_LOOP2", "JOB_QUEUED", "", "nothing", "SV_LOOP0"),
        Row("SV_LOOP2", "UPDATE", "", "record task status, set nproc", "SV_LOOP3"),
        Row("SV_LOOP2", "STOP_REQ", "", "send STOP(n)", "SV_LOOP0"),
        Row("SV_LOOP2", "STOP_IMMED", "", "send STOP(immediate)", "SV_LOOP0"),
        Row("SV_LOOP2", "DISCONNECT", "", "its tasks are pending again, once", "SV_EXIT"),
        ours("SV_LOOP2", "TIMEOUT", "", "the same, of a task that takes too long", "SV_EXIT"),
        ours("SV_LOOP2", "OK", "", "a ping: nothing", "SV_LOOP2"),
        ours("SV_LOOP2", "ERROR", "", "of the last JOB, unless UPDATE says", "SV_LOOP2"),
        Row("SV_LOOP3", "", "", "send OK(nproc)", "SV_LOOP0"),
        ours("SV_AUTH1 | SV_INIT1", "DISCONNECT", "", "nothing", "SV_EXIT"),
        ours("SV_AUTH1 | SV_INIT1", "TIMEOUT", "", "send ERROR", "SV_EXIT"),
        Row("SV_EXIT", "", "", "exit server loop", END),
    ],
)
