"""What the helper does below a pipeline's root.

root           makes the directories of a pipeline, and knows its root again
counts         counts what is in each queue
control_files  closes, pauses and resumes queues; removes old requests; publishes the report
recovery       recovers what dead drivers left, and shows that drivers live that cannot say so
log_copies     copies logs and events to where all hosts see them
"""
