"""`keys`: make the keys by which a broker and its workers know each other."""

from queuedriver.cli.words import argument
from queuedriver.doors.transports.addresses import need_zmq


def keys(
    directory: str = argument("DIR", "Where to put them; made where it is missing."),
) -> int:
    """Make a pair of CURVE keys.

    \b
    A broker's DIR    own.key_secret, which nobody else may read
                      authorized/*.key: the own.key of each worker and client that may connect
    A worker's DIR    own.key_secret
                      broker.key: the own.key of its broker
    """
    need_zmq()
    from queuedriver.doors.transports.curve import make_keys

    print(make_keys(directory))
    return 0
