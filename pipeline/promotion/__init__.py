"""Which release something becomes, and what must be written for that; pure."""

from pipeline.promotion.plan import Blocked, Obstacle, Plan, Promotion, Wanted, plan, require_number
from pipeline.promotion.standing import Standing, asked, number, subject_of

__all__ = [
    "Blocked",
    "Obstacle",
    "Plan",
    "Promotion",
    "Standing",
    "Wanted",
    "asked",
    "number",
    "plan",
    "require_number",
    "subject_of",
]
