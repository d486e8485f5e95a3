"""The pipeline file: stages joined by queues, as one TOML file describes them.

model       a pipeline as everybody but its reader sees it: resolved, checked, frozen
read        from the file to the model, or to every mistake in the file; read it first
schema      every key: where it may stand, and how its value is read
intakes     what is said of folders from which documents come
rules       what does not go together, within a stage and among stages
problems    one mistake, its line, and all of them in one error
"""
