"""Commands for whoever looks after pipelines, beside those of `watchdogd.cli`.

serve    the page in the browser; `looking` is the process that looks for it
"""
