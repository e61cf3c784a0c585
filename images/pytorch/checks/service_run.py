"""How the image starts for its users: its default command, any user id, a root that cannot be written."""

import pytest

IMPORT = ("python", "-c", "import getpass, torch; print(getpass.getuser(), int(torch.ones(3) @ torch.ones(3)))")
DEADLINE = 300
SETTLED = 5
"""Seconds after which an image that claims services still runs them, where others have ended; its own checks prove the rest."""


def test_the_default_command_starts(start, claims):
    made = start()
    if "services" in claims:
        assert made.wait(SETTLED).timed_out, made.log()
    else:
        assert made.wait(DEADLINE).code == 0, made.log()


@pytest.mark.parametrize("user", ["", "12345:0", "12345:54321", "0"], ids=["image", "uid", "uid-gid", "root"])
def test_any_user_can_use_torch_on_a_read_only_root(user, start):
    made = start(*IMPORT, user=user, read_only=True, tmpfs={"/tmp": ""})
    assert made.wait(DEADLINE).code == 0, made.log()
    assert made.log().split() == ["user", "3"]
