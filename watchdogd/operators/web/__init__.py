"""The page in the browser: what operators see of pipelines, and what they may ask of them.

server      the sockets it listens on; hands each request to `respond`; read this first
respond     from a request and facts to an answer: the table of addresses; pure
security    who may ask, by which name, and from where; what each answer says to browsers; pure
pages       what is on each page, for people and for programs; pure
graph       a pipeline drawn: boxes, arrows, curves; pure
page_inputs what pages are drawn from
snapshot    the one process that looks at a pipeline, however many watch; what that process does is
            in `watchdogd.cli.operators.looking`
"""
