"""A shell over ssh: with a key of the user, and with nothing else."""

import re

import pytest
import reach

VARIABLES = ("VIRTUAL_ENV", "PIP_CONSTRAINT", "UV_CONSTRAINT", "HF_HOME", "NVIDIA_DRIVER_CAPABILITIES")
FOUND = "command -v python; bash -lc 'command -v python'; whoami; echo ~"
KEY = "/home/user/.local/share/lab/ssh_host_ed25519_key"
ONLY_KEYS = "Permission denied (publickey)."
"""What OpenSSH's client says when the server offers no other way."""


@pytest.fixture
def keys(start):
    return reach.two_keys(start)


@pytest.mark.parametrize("user", ["", "12345:0"], ids=["image", "uid"])
def test_a_key_opens_a_session_that_finds_the_image_s_python(user, keys, start):
    (private, public), _ = keys
    made = reach.shells(start, public, user=user, read_only=True, tmpfs={"/tmp": ""}, volumes=["/home/user"])
    code, said = reach.ssh(made, private, FOUND)
    assert (code, said.split()) == (0, ["/opt/venv/bin/python", "/opt/venv/bin/python", "user", "/home/user"])
    assert variables(reach.ssh(made, private, "env")[1]) == variables(made.execute(["env"])[1])
    assert made.execute(["stat", "-c", "%a", KEY]) == (0, "600\n")


def test_each_key_that_was_given_opens_a_session(keys, start):
    made = reach.shells(start, "# mine", *(public for _, public in keys))
    assert [reach.ssh(made, private, "echo", "in") for private, _ in keys] == [(0, "in\n")] * 2


def test_keys_of_the_home_open_a_session(keys, start):
    (private, public), _ = keys
    prepare = f"mkdir -m 700 ~/.ssh && echo '{public}' >~/.ssh/authorized_keys && exec lab ssh"
    made = reach.shells(start, command=("sh", "-c", prepare))
    assert reach.ssh(made, private, "echo", "in") == (0, "in\n")


def test_another_key_a_password_and_root_are_refused(keys, start):
    (private, public), (other, _) = keys
    made = reach.shells(start, public)
    assert reach.ssh(made, private, "echo", "in") == (0, "in\n")
    refused = [
        reach.ssh(made, other, "echo", "in"),
        reach.ssh(
            made, private, "echo", "in", options=["PreferredAuthentications=password,keyboard-interactive,gssapi-with-mic"]
        ),
        reach.ssh(made, private, "echo", "in", user="root"),
        reach.ssh(made, private, "echo", "in", user="sshd"),
    ]
    assert [(code, said.rpartition(": ")[2].strip()) for code, said in refused] == [(255, ONLY_KEYS)] * 4


def test_a_session_opens_no_port_and_brings_no_agent_and_no_display(keys, start):
    (private, public), _ = keys
    made = reach.shells(start, public)
    code, _ = reach.ssh(made, private, "true", options=["ExitOnForwardFailure=yes", "RemoteForward=9999 127.0.0.1:2222"])
    assert code == 255
    code, said = reach.ssh(made, private, "env", options=["ForwardAgent=yes", "ForwardX11=yes", "SendEnv=LC_*"])
    assert code == 0
    assert not re.search("^(SSH_AUTH_SOCK|DISPLAY)=", said, re.MULTILINE)


def test_host_keys_are_made_at_the_first_start(keys, start):
    (_, public), _ = keys
    bare = start("sleep", "3600")
    code, said = bare.execute(["grep", "-rIl", "PRIVATE KEY-----", "/etc", "/home", "/root", "/usr/local", "/var"], user="0")
    assert (code, said) == (1, ""), "the image holds a private key"
    first, second = reach.shells(start, public), reach.shells(start, public)
    assert fingerprint(first) != fingerprint(second)
    reach.until(lambda: f"(host key {fingerprint(first)})" in first.log(), "the fingerprint is not printed")


def test_a_file_that_sessions_write_belongs_to_whoever_started_it(keys, start):
    (private, public), _ = keys
    made = reach.shells(start, public, user="12345:0")
    assert reach.ssh(made, private, "touch /workspace/mine && stat -c %u:%g /workspace/mine") == (0, "12345:0\n")


@pytest.mark.parametrize(
    ("given", "told"),
    [("", "ssh needs a public key"), ("no key at all", "line 1 of AUTHORIZED_KEYS is no public key")],
    ids=["none", "no-key"],
)
def test_without_a_key_it_says_so_and_does_not_start(given, told, start):
    made = start("lab", "ssh", environment={"AUTHORIZED_KEYS": given})
    assert made.wait(60).code == 1
    assert told in made.log()


def variables(text):
    found = dict(line.partition("=")[::2] for line in text.splitlines())
    return {name: found[name] for name in VARIABLES}


def fingerprint(made):
    """That of the key that it uses."""
    code, said = made.execute(["ssh-keygen", "-l", "-f", KEY])
    assert code == 0, said
    return said.split()[1]
