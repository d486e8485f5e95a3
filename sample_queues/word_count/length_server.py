"""A program that stays loaded: how many words each text has. It needs nothing of queuedriver.

queuedriver run texts --to lengths --server 'python3 length_server.py'
"""

import json
import sys

# A real one would load its model here, once.
for line in sys.stdin:
    document = json.loads(line)
    try:
        with open(document["input"], encoding="utf-8") as text:
            words = len(text.read().split())
        with open(document["output"], "w", encoding="utf-8") as output:
            output.write(f"{words}\n")
        answer: dict[str, object] = {"ok": True}
    except UnicodeDecodeError as error:
        answer = {"error": f"not a text: {error}", "permanent": True}
    # Flushed, because the driver waits for this line before it sends the next.
    print(json.dumps(answer), flush=True)
