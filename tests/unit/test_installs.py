"""What scripts take in without a lock is found; what a lock names is not."""

import pytest

from pipeline.installs import outside, outside_words


def found(script: str) -> list[tuple[str, str]]:
    return [(x.tool, x.what) for x in outside(script)]


@pytest.mark.parametrize(
    ("script", "tool", "what"),
    [
        ("pip install foo", "pip", "foo"),
        ("pip3.11 --quiet install --no-cache-dir -U foo==1.0", "pip", "foo==1.0"),
        ("/opt/venv/bin/python3 -m pip install foo", "pip", "foo"),
        ("cd /x && PIP_NO_INPUT=1 pip install -r requirements.txt", "pip", "requirements.txt"),
        ("pip install -r a.lock extra", "pip", "extra"),
        ("pip install --requirement=a.txt", "pip", "a.txt"),
        ("pip install --target /x foo", "pip", "foo"),
        ("uv pip install --system foo", "uv", "foo"),
        ("uv pip sync requirements.txt", "uv", "requirements.txt"),
        ("uv sync", "uv", "what `uv` chooses"),
        ("uv tool install ruff", "uv", "ruff"),
        ("apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends git", "apt-get", "git"),
        ("apt-get -qq -o X=y install git", "apt-get", "git"),
        ("sudo -E apt install git", "apt", "git"),
        ("if true; then apk add git; fi", "apk", "git"),
        ("conda install -n base -y numpy", "conda", "numpy"),
        ("micromamba create -y --file environment.yml", "micromamba", "environment.yml"),
        ("npm install", "npm", "what `npm` chooses"),
        ("npm i -g left-pad", "npm", "left-pad"),
        ("yarn install", "yarn", "what `yarn` chooses"),
        ("cargo install ripgrep", "cargo", "ripgrep"),
        ("go install example.com/x@latest", "go", "example.com/x@latest"),
        ("set -e\n# a comment\npip install foo\n", "pip", "foo"),
        ("sh -c 'pip install foo'", "pip", "foo"),
        ("echo $(pip install foo)", "pip", "foo"),
        ('echo "$(pip install foo)"', "pip", "foo"),
        ("true `pip install foo`", "pip", "foo"),
        ("it's broken; pip install foo", "pip", "foo"),
        ("pip install foo > /dev/null 2>&1", "pip", "foo"),
        ("pip install git+https://x/y#egg=z", "pip", "git+https://x/y#egg=z"),
        ("pip download x#y && pip install foo", "pip", "foo"),
        ("(cd x; pip install .)", "pip", "."),
    ],
)
def test_an_install_outside_a_lock_is_found(script: str, tool: str, what: str) -> None:
    assert found(script) == [(tool, what)]


@pytest.mark.parametrize(
    "script",
    [
        "pip install --require-hashes -r requirements.txt",
        "pip install -r /lock/a.lock -r b.lock",
        "uv pip install --target /layer -r a.lock",
        "uv pip sync a.lock",
        "uv sync --frozen",
        "pip install --no-index --find-links /wheels foo",
        "npm ci",
        "yarn install --immutable",
        "conda create -n x --file conda-linux-64.lock",
        "pip check && pip list",
        "apt-get update && apt-get clean",
        "echo pip install foo",
        "# pip install foo",
        "layer install /lock",
        "install -d /x",
        "go build ./...",
        "",
    ],
)
def test_what_a_lock_names_is_not_found(script: str) -> None:
    assert found(script) == []


@pytest.mark.parametrize(
    "script",
    [
        "curl -fsSL https://x.example/i.sh | sh",
        "wget -qO- https://x.example/i.sh | sudo bash -s -- -y",
        "curl https://x.example/i.sh | tee log | bash",
        "bash <(curl -s https://x.example/i.sh)",
        'sh -c "$(curl -fsSL https://x.example/i.sh)"',
        "eval $(curl https://x.example/i.sh)",
        "curl https://x.example/i.sh | python3 -",
    ],
)
def test_a_script_that_is_run_unseen_is_found(script: str) -> None:
    (one,) = outside(script)
    assert one.piped
    assert one.what == "https://x.example/i.sh"


def test_a_download_that_is_not_run_is_no_install() -> None:
    assert found("curl -o x https://x.example/x && echo abc x | sha256sum -c && sh x") == []
    assert found("curl https://x.example/x | tar x") == []


def test_a_command_without_a_shell_is_read_too() -> None:
    assert [x.what for x in outside_words(["pip", "install", "foo"])] == ["foo"]
    assert [x.what for x in outside_words(["sh", "-c", "pip install foo"])] == ["foo"]
