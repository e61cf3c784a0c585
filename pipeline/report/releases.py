"""What a promotion would write, and what it wrote, on one screen."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from pipeline.report.changes import weaknesses_json
from pipeline.report.data import plain
from pipeline.report.decisions import decisions_json
from pipeline.report.tables import table

if TYPE_CHECKING:
    from pipeline.promote import Case, Prepared, Settled
    from pipeline.promotion import Plan, Promotion


def promotions_json(settled: "Sequence[Settled]", prepared: "Prepared | None", written: "Sequence[Promotion]") -> Any:
    """Decisions, which vulnerabilities come and go, the plan or what hinders it, and what was written."""
    from pipeline.promotion import Blocked

    plan = prepared.plan if prepared else None
    return {
        "decisions": decisions_json([case.decision for case in prepared.cases]) if prepared else [],
        "vulnerabilities": [_vulnerabilities(case) for case in prepared.cases] if prepared else [],
        "obstacles": plain(plan.obstacles) if isinstance(plan, Blocked) else [],
        "plan": [] if plan is None or isinstance(plan, Blocked) else [_promotion(one) for one in plan.promotions],
        "settled": [_settled(one) for one in settled],
        "written": [_promotion(one) for one in written],
    }


def promotion_table(plan: "Plan") -> RenderableType:
    """Each tag before and after, then every write in its order."""
    tags = table("image", "tag", "before", "after")
    for one in plan.promotions:
        after = Text(f"{one.release} ({one.target.digest.hex[:12]})")
        tags.add_row(one.image, str(one.release), one.target.digest.hex[:12] if one.tagged else "-", one.target.digest.hex[:12])
        tags.add_row("", one.floating, _before(one), after)
    writes = [Text(f"{number}. {one.image}: {write}") for one in plan.promotions for number, write in enumerate(one.writes, 1)]
    return Group(tags, *(writes or [Text("nothing to do")]), *map(Text, plan.notes))


def announcement(promotion: "Promotion | Settled") -> str:
    """One line to paste."""
    tag = str(promotion.release)
    return f"{promotion.image} {tag}: {promotion.target.repository}:{tag}@{promotion.target.digest}, also as {promotion.floating}"


def _vulnerabilities(case: "Case") -> Any:
    return {"image": case.subject.image, **weaknesses_json(case.now, case.replaced)}


def _settled(one: "Settled") -> Any:
    return {"image": one.image, "target": str(one.target), "tag": one.tag, "floating": one.floating, "key": one.key}


def _before(one: "Promotion") -> str:
    if one.before is None:
        return "-"
    return f"{one.before_release or 'no release'} ({one.before.hex[:12]})"


def _promotion(one: "Promotion") -> Any:
    return {
        "image": one.image,
        "source": str(one.source),
        "target": str(one.target),
        "tag": str(one.release),
        "floating": one.floating,
        "before": str(one.before) if one.before else None,
        "writes": list(one.writes),
    }
