"""Whose fault a failure is: `images/failures.yaml` → rows, each a text or exit code with its owner and the remedy.

A text is found as it stands, whatever its letter case and line breaks; there are no patterns. The first row that fits
decides, so what holds under conditions stands before what holds otherwise, and a text that no row can reach is a fault.
"""

from collections.abc import Collection, Iterator
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field

from pipeline.catalog import CheckName, Entry, Sentence
from pipeline.errors import CatalogError
from pipeline.yaml_models import value
from pipeline.yaml_text import Document, Problem, read

Owner = Literal["image", "machine", "reference", "pipeline"]
"""Whose fault it is; `reference`: the image's where a reference image passes on the same GPUs, else the machine's."""
Fact = Literal["driver-below-claim", "driver-in-image"]
"""What is known beside the text: the driver is older than the image claims to need; a driver's library lies in the image."""
FACTS: tuple[Fact, ...] = get_args(Fact)
SHORTEST = 8
"""Letters of a text; a shorter one would be found everywhere."""


def _long_enough(text: str) -> str:
    if len(_plain(text)) < SHORTEST:
        raise ValueError(f"would be found everywhere: give it {SHORTEST} letters or more")
    return text


class Row(Entry):
    """One kind of failure; it fits when one of its texts occurs, or its exit code, and all that `when` names holds."""

    name: CheckName
    texts: tuple[Annotated[Sentence, AfterValidator(_long_enough)], ...] = ()
    codes: tuple[Annotated[int, Field(ge=1, le=255)], ...] = ()
    """How the container ended: 137 is SIGKILL, 139 SIGSEGV, 134 SIGABRT."""
    owner: Owner
    when: tuple[Fact, ...] = ()
    remedy: Sentence
    """What to do about it."""


class Failures(Entry):
    """All rows, in the order in which they are tried."""

    failures: tuple[Row, ...]

    def find(self, text: str, *, code: int | None = None, facts: Collection[str] = ()) -> Row | None:
        """The first row that fits what was said and how it ended; None where no row knows it."""
        said = _plain(text)
        return next(
            (
                row
                for row in self.failures
                if set(row.when) <= set(facts) and (code in row.codes or any(_plain(one) in said for one in row.texts))
            ),
            None,
        )


NONE = Failures(failures=())


def parse(content: bytes, file: str) -> Failures:
    """The rows of `content`, YAML in UTF-8; raises `CatalogError` with all faults, as `file:line: text`."""
    document = read(file, content)
    problems = list(document.problems)
    found = value(Failures, document, document.value, problems) if document.value or not problems else None
    problems += _relations(found, document) if found else ()
    if problems or found is None:
        raise CatalogError([str(problem) for problem in sorted(set(problems))])
    return found


def _relations(found: Failures, document: Document) -> Iterator[Problem]:
    """What is wrong between rows, and in a row as a whole."""
    for at, row in enumerate(found.failures):
        before = found.failures[:at]
        if not row.texts and not row.codes:
            yield document.problem(("failures", at), f"`{row.name}` has neither `texts` nor `codes`: nothing would find it")
        if row.name in [one.name for one in before]:
            yield document.problem(("failures", at, "name"), f"there is a row `{row.name}` already")
        for place, text in enumerate(row.texts):
            if taker := _taker(before, row, text=text):
                yield document.problem(("failures", at, "texts", place), f"`{row.name}` is not reached by `{text}`: `{taker}` is")
        for place, code in enumerate(row.codes):
            if taker := _taker(before, row, code=code):
                yield document.problem(("failures", at, "codes", place), f"`{row.name}` is not reached by {code}: `{taker}` is")


def _taker(before: Collection[Row], row: Row, *, text: str = "", code: int | None = None) -> str:
    """The earlier row that fits whenever this text or code of `row` does."""
    alone = [one for one in before if set(one.when) <= set(row.when)]
    return next((one.name for one in alone if Failures(failures=(one,)).find(text, code=code, facts=row.when)), "")


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()
