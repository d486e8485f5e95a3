"""`metrics`: what Prometheus is told of a pipeline, printed once."""

import os
import sys
import time

from queuedriver.cli.words import flag, option
from queuedriver.errors import ConfigError
from watchdogd.cli.arguments import PIPELINE, PIPELINE_FILE, either
from watchdogd.cli.pipeline_argument import choose
from watchdogd.operators import textfile
from watchdogd.operators.oldest import oldest_waiting
from watchdogd.operators.view import look

# Alerts with their tests, and a dashboard.
MONITORING = os.path.join(os.path.dirname(textfile.__file__), "monitoring")


def metrics(
    pipeline: str | None = PIPELINE,
    option: str | None = PIPELINE_FILE,
    host: str | None = option("HOST", "Only what the watchdog of this host is to tell."),
    where: bool = flag("Print where the alerts and the dashboard are.", "--where"),
) -> None:
    """Print the metrics of a pipeline as Prometheus reads them, of all hosts.

    With `metrics = "FILE"` in its [pipeline] each watchdog writes its own, for node_exporter.
    """
    if where:
        print(MONITORING)
        return
    try:
        from watchdogd.operators.metrics import exposition
    except ImportError:
        raise ConfigError(textfile.NOT_INSTALLED) from None
    chosen = choose(either(pipeline, option), hung_too=True)
    text, _ = exposition(look(chosen), oldest_waiting(chosen, time.time()), host=host)
    sys.stdout.buffer.write(text)
