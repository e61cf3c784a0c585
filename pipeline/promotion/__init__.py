"""Which release something becomes, and what must be written for that; pure."""

from pipeline.promotion.past import Entry, Past, past
from pipeline.promotion.plan import Blocked, Obstacle, Plan, Promotion, Wanted, plan, require_number
from pipeline.promotion.standing import Standing, asked, number, subject_of

__all__ = [
    "Blocked",
    "Entry",
    "Obstacle",
    "Past",
    "Plan",
    "Promotion",
    "Standing",
    "Wanted",
    "asked",
    "number",
    "past",
    "plan",
    "require_number",
    "subject_of",
]
