"""Keeps drivers alive and chains stages into pipelines.

supervisor       the loop; read this first
stages           which there are, how many drivers each gets, how they end; when a drain is over
sizes            how many drivers each stage is to have, within what the host has
balance          the split of a host's drivers among the stages
throughput       documents per second, and how long one may take
stage_drivers    the drivers of one stage: started with what, replaced when
slot             one driver's place: what is seen of it, what is done to it
policy           what to do about a slot: start, ask, or rest
driver_orders    what a driver is told, and the copy for the next watchdog
template         what the drivers of a stage are forked from, on the watchdog's side
driver_ids       what drivers are called, and where a watchdog keeps what is its own
children         every process: started, told, reaped and ended
linux            what a process asks of the kernel for itself
helper           what does all input and output below the root, on the watchdog's side; and what is
                 known of the queues from one look to the next
helper_process   how one begins: before all else, for it takes its time to load
helper_messages  what the two tell each other, and either end of the socket
stage_words      a stage in a word, for the watchdog and for `status`
control          the files by which a pipeline is steered
requests         what these, and signals, ask of a watchdog
events           what happens: its log, and the commands that tell of it
report           what a watchdog says of itself, its stages and its drivers; how that is found
systemd          what the service manager is told
logs             logs of bounded size
lock             one watchdog for each host and pipeline
host             what this host has, and what drivers take of it
check            whether a pipeline can run on this host, and what its stages call be imported

cli              the command `watchdogd`
pipeline         the pipeline's file
programs         what a watchdog starts, each as a process of its own
queues           what the helper does below the root
"""
