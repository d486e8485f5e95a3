"""The name of any item: the inverse of `names.parse`, for those who try all kinds."""

from queuedriver.format import names
from queuedriver.format.names import Item


def format_name(item: Item) -> str:
    """Return the file name of an item."""
    match item.state:
        case "ready" | "failed":
            return names.waiting_name(item.docid, item.attempt)
        case "working":
            return names.working_name(item.docid, item.attempt, item.token)
        case "written":
            return names.written_name(item.docid, item.attempt, item.token)
        case "later":
            return names.later_name(item.docid, item.attempt, item.due)
        case "writing":
            return names.writing_name(item.docid, item.token, item.ext)
    return f"{item.docid}.failed_twice"
