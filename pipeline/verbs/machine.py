"""`setup` and `doctor`: the machine."""

from pipeline import context
from pipeline.call import Call, print_json, ready_for
from pipeline.errors import ToolUnfit


def setup_verb(call: Call) -> int:
    """Make the machine ready, or stop what was started."""
    from pipeline import setup

    if call.arguments.stop:
        stopped = setup.stop(settings=call.settings, run=call.run, environment=call.environment)
        call.console.say("stopped " + ", ".join(stopped) if stopped else "nothing of ours runs")
        return 0
    catalog = context.load(call.settings)
    ready_for(call, catalog, "builder", "registry", "engine", "cli", "uv", "hadolint")
    call.console.say(f"ready: builds write to `{catalog.candidate_repository}`")
    return 0


def doctor_verb(call: Call) -> int:
    """Say what is wrong with the machine; exit 4 when something is."""
    from pipeline import doctor, report

    catalog = context.load(call.settings)
    findings = doctor.examine(
        settings=call.settings, registry_host=catalog.candidate_repository, run=call.run, environment=call.environment
    )
    if call.arguments.json:
        print_json(report.findings_json(findings))
    else:
        call.console.show(report.findings_table(findings))
    return ToolUnfit.exit_code if any(finding.state is doctor.State.FAULT for finding in findings) else 0
