"""`setup` and `doctor`: the machine."""

from pipeline import context
from pipeline.call import Call, print_json, ready_for
from pipeline.diagnosis import State
from pipeline.errors import PipelineError, ToolUnfit
from pipeline.toolchain import machine_name
from pipeline.verbs.harbors import apply_to_harbor, harbor_findings
from pipeline.verbs.room import prune


def setup_verb(call: Call) -> int:
    """Make the machine ready, stop what was started, or make room on it."""
    from pipeline import setup

    if call.arguments.prune or call.arguments.apply:
        return prune(call)
    if call.arguments.stop:
        stopped = setup.stop(settings=call.settings, run=call.run, environment=call.environment)
        call.console.say("stopped " + ", ".join(stopped) if stopped else "nothing of ours runs")
        return 0
    catalog = context.load(call.settings)
    ready_for(call, catalog, "builder", "registry", "engine", "cli", "uv", "hadolint", "trivy", fresh=True)
    call.console.say(f"ready: builds write to `{catalog.candidate_repository}`")
    return 0


def doctor_verb(call: Call) -> int:
    """Say what is wrong with the machine and with the Harbor that the catalog names; exit 4 when something is.

    With `--clear`, lift the machine's quarantine before; with `--harbor`, look at that Harbor alone; with `--apply`, make
    the projects and rules there that lack.
    """
    from pipeline import doctor, report

    if call.arguments.clear:
        _clear(call)
    catalog = context.load(call.settings)
    if call.arguments.apply:
        apply_to_harbor(call, catalog)
    findings = harbor_findings(call, catalog)
    if not call.arguments.harbor:
        repository = catalog.candidate_repository
        of_machine = doctor.examine(settings=call.settings, registry_host=repository, run=call.run, environment=call.environment)
        findings = (*of_machine, *findings)
    if call.arguments.json:
        print_json(report.findings_json(findings))
    else:
        call.console.show(report.findings_table(findings))
    return ToolUnfit.exit_code if any(finding.state is State.FAULT for finding in findings) else 0


def _clear(call: Call) -> None:
    """Lift the quarantine of this machine, and of the engine's where that is another one."""
    from pipeline.quarantine import Quarantine

    for host in dict.fromkeys((machine_name(call.environment), *_engines_machine(call))):
        lifted = Quarantine(call.settings.quarantine, host).clear()
        call.console.say(f"`{host}`: " + ("the quarantine is lifted, all strikes are forgotten" if lifted else "has no strikes"))


def _engines_machine(call: Call) -> tuple[str, ...]:
    from pipeline.engine import connect

    try:
        engine = connect(call.environment, run=call.run_id)
    except PipelineError as error:
        call.console.warn(f"only this machine is cleared: {error.message}")
        return ()
    engine.close()
    return tuple(filter(None, (engine.facts.machine.get("host", ""),)))
