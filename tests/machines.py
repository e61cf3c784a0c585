"""Machines with GPUs, as `nvidia-smi` and other programs described them: recorded answers in place of processes."""

from collections.abc import Sequence
from pathlib import Path

from pipeline.command import Completed
from pipeline.errors import PipelineError, ToolUnfit

DATA = Path(__file__).parent / "data" / "nvidia"


def recorded(name: str) -> str:
    path = DATA / name
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def done(stdout: str = "", code: int = 0, stderr: str = "") -> Completed:
    return Completed(argv=(), code=code, stdout=stdout, stderr=stderr, seconds=0.0)


class Smi:
    """`nvidia-smi` of a machine, recorded under a name; `query` and the others replace an answer."""

    def __init__(self, name: str, **answers: Completed | PipelineError) -> None:
        self.name, self.answers, self.asked = name, answers, list[str]()

    def __call__(self, argv: Sequence[str]) -> Completed:
        assert argv[0] == "nvidia-smi"
        kind = {"-q": "q", "-L": "L", "--query-gpu": "query", "--query-compute-apps": "apps"}[argv[1].partition("=")[0]]
        self.asked.append(argv[1])
        answer = self.answers.get(kind) or done(recorded(f"{self.name}.{kind}.{'csv' if 'query' in argv[1] else 'txt'}"))
        if isinstance(answer, PipelineError):
            raise answer
        return answer


class Tools:
    """`Run` with programs that answer; what is not among them cannot be started."""

    def __init__(self, answers: dict[str, Completed | PipelineError]) -> None:
        self.answers = answers

    def __call__(self, *argv: str | Path, timeout: float, check: bool = True, **_: object) -> Completed:
        answer = self.answers.get(str(argv[0])) or ToolUnfit(f"`{argv[0]}` cannot be started: No such file or directory")
        if isinstance(answer, PipelineError):
            raise answer
        return answer


class Machine(Tools):
    """`Run` on a machine with GPUs."""

    def __init__(self, smi: Smi, answers: dict[str, Completed | PipelineError]) -> None:
        super().__init__(answers)
        self.smi = smi

    def __call__(self, *argv: str | Path, timeout: float, check: bool = True, **_: object) -> Completed:
        words = [str(word) for word in argv]
        return self.smi(words) if words[0] == "nvidia-smi" else super().__call__(*words, timeout=timeout)
