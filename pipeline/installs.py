"""What a shell script installs without a lock, or runs unseen: read for lint, so a guess where shells allow anything."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

INSTALLS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(
        ("apt", "apt-get", "aptitude", "dnf", "microdnf", "tdnf", "yum", "zypper", "snap", "brew"), frozenset({"install"})
    ),
    **dict.fromkeys(("conda", "mamba", "micromamba"), frozenset({"install", "create", "update"})),
    **dict.fromkeys(("npm", "yarn", "pnpm"), frozenset({"install", "i", "add"})),
    **dict.fromkeys(("gem", "cargo", "pipx", "pip"), frozenset({"install"})),
    **dict.fromkeys(("poetry", "pdm", "apk"), frozenset({"add"})),
    "go": frozenset({"install", "get"}),
    "pacman": frozenset({"-S", "-Sy", "-Syu"}),
    "uv": frozenset({"pip install", "pip sync", "tool install", "add", "sync"}),
}
"""Package managers, and their words that fetch packages."""
UNLESS: Mapping[str, tuple[str, ...]] = {
    "apt": ("--no-download",),
    "apt-get": ("--no-download",),
    "cargo": ("--path",),
    "pip": ("--no-index",),
    "pnpm": ("--frozen-lockfile",),
    "uv": ("--no-index", "--frozen", "--locked"),
    "yarn": ("--frozen-lockfile", "--immutable"),
}
"""Options with which they fetch nothing that no lock names."""
LOCKED_FILES = ("-r", "--requirement", "--file")
VALUED = {*LOCKED_FILES, "-c", "--constraint", "-t", "--target", "-i", "--index-url", "--extra-index-url", "-f", "--find-links"}
VALUED |= {"--prefix", "--root", "-n", "--name", "-p", "--python", "--channel", "--cache-dir", "--trusted-host", "-o", "--option"}
"""Options whose value is no package."""
WRAPPERS = frozenset(
    ("sudo", "env", "exec", "time", "nice", "nohup", "command", "xargs", "then", "do", "else", "if", "while", "until", "!", "{")
)
SHELLS = re.compile(r"(?:ba|da|a|z|k)?sh|python[0-9.]*|perl|ruby|node|eval|source|\.")
FETCHERS = ("curl", "wget")
_PUNCTUATION = ";&|()<>\n`"


@dataclass(frozen=True, kw_only=True)
class Outside:
    """Something that comes from no lock: `what` (a package, or an address), and the program that fetches it."""

    what: str
    tool: str
    piped: bool = False
    """Whether it is run without having been looked at."""


@dataclass(frozen=True)
class _Command:
    before: str
    """The separator before it."""
    words: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.words[0].rpartition("/")[2]


def outside(script: str) -> Iterator[Outside]:
    """What `script` takes in without a lock."""
    yield from _judge(tuple(_commands(script)))


def outside_words(words: Sequence[str]) -> Iterator[Outside]:
    """The same of one command that no shell reads (`RUN ["pip", …]`)."""
    yield from _judge(tuple(_unwrapped("", words)))


def _judge(commands: tuple[_Command, ...]) -> Iterator[Outside]:
    for index, command in enumerate(commands):
        yield from _installed(command)
        if command.name in FETCHERS and _is_run(commands, index):
            address = next((word for word in command.words if "://" in word), f"what `{command.name}` loads")
            yield Outside(what=address, tool=command.name, piped=True)


def _is_run(commands: tuple[_Command, ...], index: int) -> bool:
    if index and "(" in commands[index].before and SHELLS.fullmatch(commands[index - 1].name):
        return True
    for command in commands[index + 1 :]:
        if command.before not in ("|", "|&"):
            return False
        if SHELLS.fullmatch(command.name):
            return True
    return False


def _installed(command: _Command) -> Iterator[Outside]:
    tool, words = _tool(command)
    for verb in INSTALLS.get(tool, ()):
        rest = _after(verb.split(), words)
        if rest is not None and not set(UNLESS.get(tool, ())).intersection(rest):
            packages, files = _packages(rest)
            if tool == "uv" and verb == "pip sync":
                packages, files = (), files + packages
            if packages or not files or not _locked(files, rest):
                yield Outside(what=packages[0] if packages else (files or (f"what `{tool}` chooses",))[0], tool=tool)


def _locked(files: tuple[str, ...], words: Sequence[str]) -> bool:
    """pip and uv want a hash of everything once a requirement has one, and every lock of ours has."""
    return "--require-hashes" in words or all(file.endswith(".lock") for file in files)


def _tool(command: _Command) -> tuple[str, tuple[str, ...]]:
    name, rest = command.name, command.words[1:]
    if re.fullmatch(r"python[0-9.]*", name) and "-m" in rest[:3]:
        module = rest.index("-m") + 1
        name, rest = "".join(rest[module : module + 1]), rest[module + 1 :]
    return "pip" if re.fullmatch(r"pip[0-9.]*", name) else name, rest


def _after(verb: Sequence[str], words: Sequence[str]) -> tuple[str, ...] | None:
    """What follows the verb; None when the command has another."""
    values = {index + 1 for index, word in enumerate(words) if word in VALUED}
    plain = [i for i, word in enumerate(words) if i not in values and (not word.startswith("-") or word in verb)]
    found = plain[: len(verb)]
    if [words[index] for index in found] != list(verb):
        return None
    return (*words[: found[0]], *words[found[-1] + 1 :])


def _packages(words: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The packages, and the files that name more of them."""
    packages, files, option = [], [], ""
    for word in words:
        if option:
            files += [word] if option in LOCKED_FILES else []
            option = ""
        elif word in VALUED:
            option = word
        elif word.startswith("-"):
            name, _, value = word.partition("=")
            files += [value] if name in LOCKED_FILES else []
        else:
            packages.append(word)
    return tuple(packages), tuple(files)


def _commands(script: str) -> Iterator[_Command]:
    text = "\n".join(line for line in script.split("\n") if not line.lstrip().startswith("#"))
    words: list[str] = []
    before, skip = "", False
    for token in _tokens(text):
        if set(token) <= set(_PUNCTUATION) and ("(" in token or not set("<>").intersection(token)):
            yield from _unwrapped(before, words)
            before, words, skip = token, [], False
        elif set(token) <= set(_PUNCTUATION):
            skip = True
        elif skip:
            skip = False
        else:
            words.append(token)
    yield from _unwrapped(before, words)


def _tokens(text: str) -> list[str]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars=_PUNCTUATION)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    try:
        return list(lexer)
    except ValueError:
        return re.findall(rf"[{_PUNCTUATION}]+|[^\s{_PUNCTUATION}]+", text)


def _unwrapped(before: str, words: Sequence[str]) -> Iterator[_Command]:
    """The command behind assignments and wrappers, and those in the texts that it hands to a shell."""
    rest = list(words)
    while rest and (rest[0] in WRAPPERS or re.match(r"[A-Za-z_]\w*=", rest[0])):
        wrapper = rest.pop(0)
        while rest and wrapper in WRAPPERS and rest[0].startswith("-"):
            rest.pop(0)
    if rest and rest != ["$"]:
        yield _Command(before, tuple(rest))
    for index, word in enumerate(rest):
        if "$(" in word or "`" in word or (index and re.fullmatch(r"-[a-z]*c", rest[index - 1])):
            yield from _commands(word)
