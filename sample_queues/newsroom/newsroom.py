"""A wire story comes in as text and goes out as XML, in three stages.

values    is the story whole? Then find the sums, shares, dates, times and amounts in it
parse     find its sentences, the names in them, and its key words
output    write it all as XML

Between two stages a story is JSON, so that `cat` shows what each of them did.
"""

import json
import re
from collections import Counter
from typing import Any
from xml.etree import ElementTree as ET

from queuedriver import Document, PermanentError

Story = dict[str, Any]

_HEADERS = ("Headline", "Filed", "From", "Words")
_MONTHS = "January February March April May June July August September October November December"
_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
_NUMBER = r"\d[\d,]*(?:\.\d+)?(?: (?:thousand|million|billion))?"
_VALUES = {
    "money": rf"{_NUMBER} (?:crowns|pence)",
    "share": r"\d+(?:\.\d+)? per cent",
    "amount": rf"{_NUMBER} (?:kilometres|metres|tonnes|litres|hectares|degrees|homes|people)",
    "date": rf"\d{{1,2}} (?:{_MONTHS.replace(' ', '|')})|{_DAYS.replace(' ', '|')}",
    "time": r"\d{1,2}:\d\d|noon|midnight",
}
# A capital in mid-sentence, or several words with one: a guess, but at a name.
_NAME = re.compile(r"(?<=[a-z,;] )[A-Z][\w'-]+(?: [A-Z][\w'-]+)*|[A-Z][\w'-]+(?: [A-Z][\w'-]+)+")
_NOT_NAMES = {*_MONTHS.split(), *_DAYS.split()}
_FIRST_WORDS = re.compile(r"(?:At|By|In|On|Since|The) ")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9\"])")
_COMMON = """about after again before between could every first other since still their there these
those three under until where which while whose would years"""
_KEYWORDS = 5


def values(document: Document) -> str:
    """The story's headers and text, and what can be counted in it."""
    return json.dumps(read(document.read()), ensure_ascii=False)


def parse(document: Document) -> str:
    """The same, with its sentences, names and key words."""
    return json.dumps(parsed(json.loads(document.read())), ensure_ascii=False)


def output(document: Document) -> bytes:
    """The story as XML."""
    return as_xml(json.loads(document.read()), document.docid)


def edit(document: Document) -> bytes:
    """All three at once, for one queue with interchangeable drivers."""
    return as_xml(parsed(read(document.read())), document.docid)


def read(wire: bytes) -> Story:
    """A story as it came over the wire; one that is not whole can never do."""
    try:
        head, _, text = wire.decode().partition("\n\n")
    except UnicodeDecodeError as error:
        raise PermanentError(f"it is no text: byte {error.start} is not UTF-8") from error
    headers = dict(line.split(": ", 1) for line in head.splitlines() if ": " in line)
    if missing := [name for name in _HEADERS if name not in headers]:
        raise PermanentError(f"it has no header {', '.join(missing)}")
    arrived = len(text.split())
    if str(arrived) != headers["Words"]:
        # A second try would meet the same bytes, so do not ask for one.
        raise PermanentError(
            f"it was cut off on the wire: {headers['Words']} words were sent, {arrived} arrived"
        )
    found = [
        {"kind": kind, "text": match[0]}
        for kind, expression in _VALUES.items()
        for match in re.finditer(rf"\b(?:{expression})\b", text.replace("\n", " "))
    ]
    return {"headers": headers, "text": text, "values": found}


def parsed(story: Story) -> Story:
    """A story with what its sentences say."""
    paragraphs = [" ".join(one.split()) for one in story["text"].split("\n\n")]
    sentences = [_SENTENCE.split(one) for one in paragraphs]
    flat = [sentence for paragraph in sentences for sentence in paragraph]
    names = [_FIRST_WORDS.sub("", name) for one in flat for name in _NAME.findall(one)]
    words = re.findall(r"\b[a-z]{5,}\b", " ".join([story["headers"]["Headline"].lower(), *flat]))
    counts = Counter(word for word in words if word not in _COMMON.split())
    often = [word for word, times in counts.items() if times > 1]
    return {
        **story,
        "sentences": sentences,
        "names": [name for name in dict.fromkeys(names) if name not in _NOT_NAMES],
        "keywords": sorted(often, key=lambda word: -counts[word])[:_KEYWORDS],
    }


def as_xml(story: Story, docid: str) -> bytes:
    """What the site takes."""
    headers = story["headers"]
    root = ET.Element("story", id=docid, filed=headers["Filed"], place=headers["From"])
    ET.SubElement(root, "headline").text = headers["Headline"]
    for paragraph in story["sentences"]:
        element = ET.SubElement(root, "p")
        for sentence in paragraph:
            ET.SubElement(element, "s").text = sentence
    for value in story["values"]:
        ET.SubElement(root, "value", kind=value["kind"]).text = value["text"]
    for tag in ("name", "keyword"):
        for text in story[f"{tag}s"]:
            ET.SubElement(root, tag).text = text
    ET.indent(root)
    xml: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return xml + b"\n"
