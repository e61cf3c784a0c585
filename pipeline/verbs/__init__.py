"""The verbs: each puts the stages together for one call, and returns its exit code."""

from collections.abc import Callable, Mapping

from pipeline.call import Call
from pipeline.verbs.authors import explain_verb, init_verb, lint_verb, new_verb, plan_verb, update_verb
from pipeline.verbs.back import history_verb, rollback_verb, withdraw_verb
from pipeline.verbs.candidates import build_verb, run_verb, test_verb
from pipeline.verbs.issues import issues_verb
from pipeline.verbs.machine import doctor_verb, setup_verb
from pipeline.verbs.released import released_verb
from pipeline.verbs.releases import promote_verb
from pipeline.verbs.scans import scan_verb
from pipeline.verbs.summary import summary_verb
from pipeline.verbs.tries import retry_verb
from pipeline.verbs.trust import sign_verb, verify_verb

VERBS: Mapping[str, Callable[[Call], int]] = {
    "setup": setup_verb,
    "doctor": doctor_verb,
    "init": init_verb,
    "new": new_verb,
    "lint": lint_verb,
    "plan": plan_verb,
    "explain": explain_verb,
    "build": build_verb,
    "test": test_verb,
    "retry": retry_verb,
    "scan": scan_verb,
    "sign": sign_verb,
    "verify": verify_verb,
    "promote": promote_verb,
    "rollback": rollback_verb,
    "withdraw": withdraw_verb,
    "history": history_verb,
    "summary": summary_verb,
    "released": released_verb,
    "issues": issues_verb,
    "run": run_verb,
    "update": update_verb,
}
