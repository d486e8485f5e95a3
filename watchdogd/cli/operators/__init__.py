"""The commands of operators, beside those of `watchdogd.cli`: what goes wrong, and what they do.

discarded    `discarded`: what was discarded, in groups; `retry`: one group, some documents, or all;
             `batch`: what became of them; `replay`: what went through, once more
top          `top`: the terminal, the looks and the moves
navigation   where somebody is in `top`, and what each key does; pure
panes        what `top` draws; pure
serve        the page in the browser, and its tokens; `metrics`: what Prometheus is told
looking      the process that looks at a pipeline for the page
"""
