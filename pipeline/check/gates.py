"""The gates of the GPU lane, in the order in which they are asked: the first that is shut says why, and whose business it is."""

from collections.abc import Mapping, Sequence

from pipeline import gpus
from pipeline.blame import Verdict, sick
from pipeline.compatibility import Claimed
from pipeline.errors import InputError
from pipeline.gpus import Gpu, Host, Trouble
from pipeline.statements import Outcome

NO_DRIVER = "no NVIDIA driver on this machine"
NO_GPU = "the driver sees no GPU"
LOOK = "`nvidia-smi -L` must list it: look at its power, its slot and the kernel's log"
BUSY = 0.5
"""The part of a GPU's memory that may be in use without a process that owns it: a desktop's windows use less."""


def passable(host: Host | None, claims: Mapping[str, str], wanted: str) -> tuple[tuple[Gpu, ...], Verdict | None]:
    """The GPUs that the lane takes, or the verdict of the gate that is shut.

    `wanted` is what `--gpus` says; raises `InputError` when it names no GPUs of this machine.
    """
    if host is None:
        return (), _not_run(NO_DRIVER)
    claimed = Claimed.of(claims)
    if trouble := next((each for each in host.troubles if not each.gpu), None):
        return (), sick(trouble.text, trouble.remedy)
    if not host.gpus:
        trouble = next(iter(host.troubles), Trouble(text=NO_GPU, remedy=LOOK))
        return (), sick(trouble.text, trouble.remedy)
    if refusal := claimed.driver_refusal(host.driver):
        return (), _not_run(refusal)
    chosen, refusal = _chosen(host.gpus, claimed, wanted)
    if refusal:
        return chosen, _not_run(refusal)
    trouble = next((each for each in (*host.troubles, *_in_use(chosen)) if each.gpu in {gpu.uuid for gpu in chosen}), None)
    return chosen, sick(trouble.text, trouble.remedy) if trouble else None


def worse(before: Host, after: Host | None, taken: Sequence[Gpu]) -> tuple[str, ...]:
    """What became worse meanwhile on the GPUs that were taken, and on the machine."""
    if after is None:
        return ("the driver is gone",)
    uuids = {"", *(gpu.uuid for gpu in taken)}
    troubles = [each.text for each in after.troubles if each not in before.troubles and each.gpu in uuids]
    mine = before.model_copy(update={"gpus": tuple(gpu for gpu in before.gpus if gpu.uuid in uuids)})
    return (*troubles, *gpus.news(mine, after))


def told(host: Host | None) -> dict[str, str]:
    """What a record keeps of the machine."""
    if host is None:
        return {}
    unfit = "; ".join(trouble.text for trouble in host.troubles if trouble.gpu)
    found = {"host": host.name, "driver": host.driver, "toolkit": host.toolkit}
    found |= {"not looked at": "; ".join(host.unread), "unfit GPUs": unfit}
    return {name: text for name, text in found.items() if text}


def _chosen(there: Sequence[Gpu], claimed: Claimed, wanted: str) -> tuple[tuple[Gpu, ...], str]:
    """The GPUs that are meant, and why they do not do; of a number or all, those that the image does not claim are no choice."""
    refusals = {gpu.uuid: claimed.refusal(gpu) for gpu in there}
    named = wanted != gpus.ALL and not wanted.isdecimal()
    fit = [gpu for gpu in there if named or not refusals[gpu.uuid]]
    first = next((f"{gpu.name}: {refusals[gpu.uuid]}" for gpu in there if refusals[gpu.uuid]), "")
    try:
        chosen = gpus.choose(wanted, fit)
    except InputError:
        if not first or named:
            raise
        return (), first
    refused = next((f"{gpu.name}: {refusals[gpu.uuid]}" for gpu in chosen if refusals[gpu.uuid]), "")
    return chosen, refused or ("" if chosen else first)


def _in_use(chosen: Sequence[Gpu]) -> list[Trouble]:
    return [
        Trouble(
            text=f"{gpu.used / 1e9:.1f} of {gpu.memory / 1e9:.1f} GB of GPU {gpu.uuid} are in use, and no process says so",
            remedy=f"`nvidia-smi --gpu-reset -i {gpu.uuid}`, or a reboot",
            gpu=gpu.uuid,
        )
        for gpu in chosen
        if gpu.used > BUSY * gpu.memory and not gpu.processes
    ]


def _not_run(reason: str) -> Verdict:
    return Verdict(outcome=Outcome.NOT_RUN, reason=reason)
