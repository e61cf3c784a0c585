"""How the image starts for its users: its default command, any user id, a root that cannot be written."""

import pytest

IMPORT = ("python", "-c", "import getpass, torch; print(getpass.getuser(), int(torch.ones(3) @ torch.ones(3)))")
DEADLINE = 120


def test_the_default_command_starts(start):
    assert start().wait(DEADLINE).code == 0


@pytest.mark.parametrize("user", ["", "12345:0", "12345:54321", "0"], ids=["image", "uid", "uid-gid", "root"])
def test_any_user_can_use_torch_on_a_read_only_root(user, start):
    made = start(*IMPORT, user=user, read_only=True, tmpfs={"/tmp": ""})
    assert made.wait(DEADLINE).code == 0
    assert made.log().split() == ["user", "3"]
