"""Shows operators a pipeline, and does what they ask, whichever way they look at it.

hosts      a pipeline that commands are about, and its watchdogs, by what each said last
view       what can be known of it at one moment; everything that shows it counts by this one look
history    what each stage did in the last hours and days, as the watchdogs write it down
forecast   whether what waits in a stage gets less, and when it will be through; pure
metrics    the same for Prometheus; textfile has it in a file, for node_exporter
monitoring/  alerts with their tests, and a dashboard
sentences  what must be said of it before any number, and what to type then; what the word for
           each state means; pure
log_files  what drivers print, what they are at, what happened on each host
route      one document through all stages
causes     discarded documents, read and put in groups by what they failed of
batches    documents that an operator put back together, and what became of each
actions    what operators do, whoever asks for it, with a note of who that was
web/       the page in the browser
"""
