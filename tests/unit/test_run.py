"""The `docker run` line that users get, for each kind of machine and image."""

import shlex
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.engine import Described, Facts
from pipeline.errors import InputError
from pipeline.run import KEYS, Caller, argv, free_port, with_keys
from pipeline.story import Silent

IMAGE = "localhost:5601/candidates/images:v1-nlp-0123456789ab"
FACTS = Facts(version="28.0.1", root="/var/lib/docker", gpus=False)
PLAIN = Described(variables={"HOME": "/home/user", "USER": "user", "LOGNAME": "user"}, ports=())
TAKES_KEYS = Described(variables={**PLAIN.variables, KEYS: ""}, ports=())


class Told(Silent):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


def caller(terminal: bool = True, **environment: str) -> Caller:
    return Caller(folder=Path("/home/me/my project"), uid=1234, terminal=terminal, environment=environment)


def line(*command: str, described: Described = PLAIN, who: Caller | None = None, facts: Facts = FACTS, **wanted: object) -> str:
    more = {"ports": {}, "gpus": False, **wanted}
    return shlex.join(argv(IMAGE, command, described, caller=who or caller(), facts=facts, **more))  # type: ignore[arg-type]


def test_a_plain_image_gets_the_current_folder_as_the_caller() -> None:
    assert line("python", "train.py") == (
        "docker run --rm -it --init --pull never --shm-size 2g --user 1234:0 "
        f"-v '/home/me/my project:/workspace' -w /workspace {IMAGE} python train.py"
    )


def test_without_a_terminal_only_the_input_is_kept_open() -> None:
    assert line(who=caller(terminal=False)).startswith("docker run --rm -i --init ")


def test_gpus_ports_and_a_cache_of_models_are_given_when_they_are_there(tmp_path: Path) -> None:
    described = Described(variables={**PLAIN.variables, "HF_HOME": "/home/user/.cache/huggingface"}, ports=(8888,))
    found = line(described=described, who=caller(HF_HOME=str(tmp_path)), gpus=True, ports={8888: 9999})
    assert " --gpus all " in found
    assert " --device nvidia.com/gpu=all " in line(gpus=True, facts=Facts(version="28.2.0", root="", gpus=True, way="cdi"))
    assert " -p 127.0.0.1:9999:8888 " in found
    assert f" -v {tmp_path}:/home/user/.cache/huggingface " in found


def test_users_are_not_remapped_where_a_folder_is_written_as_the_caller() -> None:
    assert " --userns host " in line(facts=replace(FACTS, remapped=True))
    assert "--userns" not in line()


def test_a_cache_that_is_not_there_or_that_the_image_does_not_use_is_not_mounted(tmp_path: Path) -> None:
    described = Described(variables={**PLAIN.variables, "HF_HOME": "/cache"}, ports=())
    assert ":/cache" not in line(described=described, who=caller(HF_HOME=str(tmp_path / "none")))
    assert str(tmp_path) not in line(who=caller(HF_HOME=str(tmp_path)))


def test_secrets_are_passed_by_name_and_never_shown() -> None:
    found = line(who=caller(HF_TOKEN="hf_secret", HF_ENDPOINT="https://mirror.example.com", HF_HUB_OFFLINE=""))
    assert "hf_secret" not in found
    assert "-e HF_ENDPOINT -e HF_TOKEN" in found
    assert "HF_HUB_OFFLINE" not in found


def test_what_an_image_leaves_empty_is_passed_by_name_when_the_caller_has_it() -> None:
    described = Described(variables={**PLAIN.variables, "NOTEBOOK_TOKEN": "", "OTHER": "", "FULL": "x"}, ports=())
    found = line(described=described, who=caller(NOTEBOOK_TOKEN="secret", FULL="y"))
    assert found.endswith(f" -e NOTEBOOK_TOKEN {IMAGE}")


def test_an_image_is_told_of_ports_that_are_others_outside() -> None:
    assert f" -e PORT_8888=9999 {IMAGE}" in line(ports={8888: 9999, 2222: 2222})


def test_the_callers_public_keys_are_given_to_an_image_that_takes_keys(tmp_path: Path) -> None:
    write_keys(tmp_path, **{"id_a.pub": "ssh-a one\n", "id_b.pub": "ssh-b two\n", "id_b-cert.pub": "no", "id_a": "no"})
    story = Told()
    found = with_keys(caller(HOME=str(tmp_path)), TAKES_KEYS, story)
    assert found.environment[KEYS] == "ssh-a one\nssh-b two"
    assert f" -e {KEYS} {IMAGE}" in line(described=TAKES_KEYS, who=found)
    assert story.lines == []


def test_keys_that_the_caller_names_are_kept_and_no_image_gets_keys_unasked(tmp_path: Path) -> None:
    write_keys(tmp_path, **{"id.pub": "ssh-a one"})
    mine = caller(HOME=str(tmp_path), AUTHORIZED_KEYS="ssh-c three")
    assert with_keys(mine, TAKES_KEYS, Told()) is mine
    other = caller(HOME=str(tmp_path))
    assert with_keys(other, PLAIN, Told()) is other


@pytest.mark.parametrize("home", ["", "{folder}"])
def test_a_caller_without_keys_is_told_so(home: str, tmp_path: Path) -> None:
    story = Told()
    found = with_keys(caller(HOME=home.format(folder=tmp_path)), TAKES_KEYS, story)
    assert KEYS not in found.environment
    assert ["`ssh-keygen -t ed25519`" in text for text in story.lines] == [True]


def test_a_public_key_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    write_keys(tmp_path)
    (tmp_path / ".ssh/id.pub").write_bytes(b"\xff")
    with pytest.raises(InputError, match=r"id\.pub` cannot be read"):
        with_keys(caller(HOME=str(tmp_path)), TAKES_KEYS, Told())


def test_where_people_log_in_root_becomes_the_image_s_own_user() -> None:
    root = Caller(folder=Path("/x"), uid=0, terminal=False, environment={})
    assert " --user 0:0 " in line(who=root)
    assert "--user" not in line(described=TAKES_KEYS, who=root)
    assert "--user" not in line(described=TAKES_KEYS, facts=Facts(version="28", root="", gpus=False, rootless=True))
    assert " --user 1234:0 " in line(described=TAKES_KEYS)


def write_keys(home: Path, **files: str) -> None:
    (home / ".ssh").mkdir()
    for name, text in files.items():
        (home / ".ssh" / name).write_text(text)


def test_an_image_that_names_no_home_or_user_gets_ones_that_work() -> None:
    assert "-e HOME=/tmp -e USER=user -e LOGNAME=user" in line(described=Described(variables={}, ports=()))


def test_a_rootless_engine_gets_its_own_root_and_selinux_is_told() -> None:
    assert " --user 0:0 " in line(facts=Facts(version="28", root="", gpus=False, rootless=True))
    assert " --security-opt label=disable " in line(facts=Facts(version="28", root="", gpus=False, selinux=True))


def test_a_port_that_is_taken_is_replaced_and_said() -> None:
    story = Told()
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        taken = holder.getsockname()[1]
        found = free_port(taken, story)
    assert found != taken
    assert story.lines == [f"port {taken} is taken: the image's port {taken} is `localhost:{found}`"]


@pytest.mark.parametrize("version", ["20.10.24+dfsg1", "19.03.5", ""])
def test_engines_before_23_do_not_read_zstd(version: str) -> None:
    assert not Facts(version=version, root="", gpus=False).reads_zstd


def test_engines_from_23_on_read_zstd() -> None:
    assert Facts(version="23.0.0-rc.1", root="", gpus=False).reads_zstd
