"""`issues`: what is to be written where people look, from what a night found of released images."""

from pipeline import matrix, notices
from pipeline.call import Call, content, summarise
from pipeline.errors import InputError


def issues_verb(call: Call) -> int:
    """Print each request to GitHub as JSON on one line, in the order in which they are sent."""
    files = sorted(call.arguments.folder.glob("*.json"))
    if not files:
        raise InputError(
            f"`{call.arguments.folder}` holds nothing that `verify --issues` wrote", hint="name there what `verify` was given"
        )
    found = [notices.parse(file.name, content(file)) for file in files]
    there = notices.issues(content(call.arguments.there))
    for request in notices.requests(found, there):
        print(matrix.compact(request))
    summarise(call, notices.markdown(found, there))
    return 0
