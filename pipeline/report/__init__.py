"""Results as people and machines read them: tables, JSON, JUnit XML, Markdown. Everything here is pure."""

from pipeline.report.changes import changes_markdown, weaknesses_markdown, weaknesses_screen
from pipeline.report.data import (
    builds_json,
    compatibility_json,
    explanation_json,
    findings_json,
    lanes_json,
    lint_json,
    moved_json,
    plan_json,
)
from pipeline.report.decisions import decision_markdown, decision_table, decisions_json, issue_markdown
from pipeline.report.evidence import evidence_json, evidence_table, signings_json, signings_table
from pipeline.report.history import (
    history_json,
    history_table,
    rollback_json,
    rollback_table,
    withdrawal_json,
    withdrawal_lines,
)
from pipeline.report.junit import builds_junit, lanes_junit
from pipeline.report.lanes import lanes_markdown, lanes_table
from pipeline.report.releases import announcement, promotion_table, promotions_json
from pipeline.report.scans import scans_json, scans_markdown, scans_table
from pipeline.report.tables import (
    builds_table,
    compatibility_table,
    explanation_table,
    findings_table,
    moved_table,
    plan_table,
)

__all__ = [
    "announcement",
    "builds_json",
    "builds_junit",
    "builds_table",
    "changes_markdown",
    "compatibility_json",
    "compatibility_table",
    "decision_markdown",
    "decision_table",
    "decisions_json",
    "evidence_json",
    "evidence_table",
    "explanation_json",
    "explanation_table",
    "findings_json",
    "findings_table",
    "history_json",
    "history_table",
    "issue_markdown",
    "lanes_json",
    "lanes_junit",
    "lanes_markdown",
    "lanes_table",
    "lint_json",
    "moved_json",
    "moved_table",
    "plan_json",
    "plan_table",
    "promotion_table",
    "promotions_json",
    "rollback_json",
    "rollback_table",
    "scans_json",
    "scans_markdown",
    "scans_table",
    "signings_json",
    "signings_table",
    "weaknesses_markdown",
    "weaknesses_screen",
    "withdrawal_json",
    "withdrawal_lines",
]
