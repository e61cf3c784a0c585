"""The programs that people use in here run, and say the versions that the image claims."""

import json
import subprocess
import sys
import time

import pytest

SSHD = {
    "allowagentforwarding": "no",
    "allowstreamlocalforwarding": "no",
    "allowtcpforwarding": "local",
    "allowusers": "user",
    "authenticationmethods": "publickey",
    "gatewayports": "no",
    "gssapiauthentication": "no",
    "hostbasedauthentication": "no",
    "kbdinteractiveauthentication": "no",
    "passwordauthentication": "no",
    "permitemptypasswords": "no",
    "permitrootlogin": "no",
    "permittunnel": "no",
    "permituserenvironment": "no",
    "permituserrc": "no",
    "port": "2222",
    "pubkeyauthentication": "yes",
    "usepam": "no",
    "x11forwarding": "no",
}


def output(*argv, **options):
    done = subprocess.run(argv, capture_output=True, text=True, timeout=3000, check=False, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "words", [("tmux", "-V"), ("git", "--version"), ("less", "--version"), ("ssh", "-V")], ids=lambda words: words[0]
)
def test_a_program_runs(words):
    output(*words)


@pytest.mark.parametrize(("words", "name"), [(("jupyter", "lab"), "jupyterlab"), (("tensorboard",), "tensorboard")])
def test_a_service_has_the_claimed_version(words, name, claims):
    assert output(*words, "--version").split()[-1] == claims[name]


def test_notebooks_run_on_the_image_s_python():
    kernels = json.loads(output("jupyter", "kernelspec", "list", "--json"))["kernelspecs"]
    assert list(kernels) == ["python3"]
    program = kernels["python3"]["spec"]["argv"][0]
    assert program in ("python", f"{sys.prefix}/bin/python")


def test_tmux_keeps_a_shell_that_finds_the_image_s_python(tmp_path):
    found = tmp_path / "found"
    tmux = ("tmux", "-S", str(tmp_path / "socket"))
    output(
        *tmux, "-f", "/dev/null", "new-session", "-d", f"bash -lc 'command -v python >{found}.part && mv {found}.part {found}'"
    )
    late = time.monotonic() + 300
    while not found.exists():
        assert time.monotonic() < late
        time.sleep(0.05)
    assert found.read_text().strip() == f"{sys.prefix}/bin/python"
    subprocess.run((*tmux, "kill-server"), capture_output=True, timeout=300, check=False)


def test_git_keeps_a_history(tmp_path):
    git = ("git", "-C", str(tmp_path), "-c", "user.name=me", "-c", "user.email=me@example.com")
    output(*git, "init", "--quiet")
    (tmp_path / "file").write_text("text")
    output(*git, "add", "file")
    output(*git, "commit", "--quiet", "-m", "one")
    assert output(*git, "log", "--format=%s").split() == ["one"]


def test_tensorboard_reads_what_torch_writes(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("loss", 0.5, 7)
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(7, 0.5)]


def test_sshd_takes_keys_of_one_user_and_nothing_else(tmp_path):
    output("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key"))
    lines = output("/usr/sbin/sshd", "-T", "-f", "/etc/ssh/sshd_config", "-h", str(tmp_path / "key")).splitlines()
    found = dict(line.split(" ", 1) for line in lines if " " in line)
    assert {name: found.get(name) for name in SSHD} == SSHD
    assert "acceptenv" not in found
