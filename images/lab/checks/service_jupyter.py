"""Notebooks as people use them: over HTTP and its websocket, with the token, and never without."""

import json
import re
import uuid

import pytest
import reach
import websocket

TOKEN = "a-token-of-this-check"
MADE = re.compile(r"token=([0-9a-f]{48})\b")
CELL = "import sys, torch; print(sys.prefix, int(torch.ones(3) @ torch.ones(3)))"
REFUSED = 403


@pytest.fixture
def browser():
    with reach.browser() as session:
        yield session


def header(token):
    return {"Authorization": f"token {token}"}


@pytest.mark.parametrize("token", [None, "", "another"], ids=["none", "empty", "another"])
def test_whoever_lacks_the_token_is_refused(token, start, browser):
    _, url = reach.notebooks(start, environment={"JUPYTER_TOKEN": TOKEN})
    wrong = {} if token is None else header(token)
    for method, path in (
        ("GET", "kernels"),
        ("POST", "kernels"),
        ("GET", "contents"),
        ("POST", "terminals"),
        ("GET", "sessions"),
    ):
        assert browser.request(method, f"{url}/api/{path}", headers=wrong, timeout=reach.PATIENCE).status_code == REFUSED, path
    kernel = browser.post(f"{url}/api/kernels", headers=header(TOKEN), timeout=reach.PATIENCE).json()["id"]
    with pytest.raises(websocket.WebSocketBadStatusException) as error:
        connect(url, kernel, wrong)
    assert error.value.status_code == REFUSED


def test_a_kernel_runs_a_cell_and_a_terminal_opens(start, browser):
    _, url = reach.notebooks(start, environment={"JUPYTER_TOKEN": TOKEN}, user="12345:0")
    started = browser.post(f"{url}/api/kernels", headers=header(TOKEN), timeout=reach.PATIENCE)
    assert started.status_code == 201, started.text
    assert result_of(CELL, url, started.json()["id"]).split() == ["/opt/venv", "3"]
    assert browser.post(f"{url}/api/terminals", headers=header(TOKEN), timeout=reach.PATIENCE).status_code == 200
    assert browser.get(f"{url}/lab?token={TOKEN}", timeout=reach.PATIENCE).status_code == 200


@pytest.mark.parametrize("environment", [{}, {"JUPYTER_TOKEN": ""}], ids=["none-given", "empty"])
def test_a_token_is_made_and_printed_once(environment, start, browser):
    made, url = reach.notebooks(start, environment=environment)
    (token,) = reach.until(lambda: MADE.findall(made.log()), "no token is printed")
    assert f"http://localhost:8888/lab?token={token}" in made.log()
    assert made.log().count(token) == 1
    assert browser.get(f"{url}/api/kernels", headers=header(token), timeout=reach.PATIENCE).status_code == 200
    assert browser.get(f"{url}/api/kernels", headers=header(""), timeout=reach.PATIENCE).status_code == REFUSED


def test_each_container_makes_a_token_of_its_own(start):
    tokens = [
        reach.until(lambda made=made: MADE.findall(made.log()), "no token is printed")
        for made, _ in (reach.notebooks(start), reach.notebooks(start))
    ]
    assert tokens[0] != tokens[1]


def test_a_token_that_was_given_is_shown_nowhere(start, browser):
    made, url = reach.notebooks(start, environment={"JUPYTER_TOKEN": TOKEN, "PORT_8888": "9999"})
    reach.until(lambda: "http://localhost:9999/lab" in made.log(), "no address is printed")
    kernel = browser.post(f"{url}/api/kernels", headers=header(TOKEN), timeout=reach.PATIENCE).json()["id"]
    assert TOKEN not in made.log()
    assert TOKEN not in arguments(made)
    assert TOKEN not in result_of("import os; print(dict(os.environ))", url, kernel)


def test_a_home_that_wants_no_token_is_refused(start, browser):
    settings = (
        "mkdir -p ~/.jupyter && echo 'c.IdentityProvider.token = \"\"' >~/.jupyter/jupyter_server_config.py && exec lab jupyter"
    )
    made = start("sh", "-c", settings, ports=[8888])
    host, port = made.address(8888)
    url = f"http://{host}:{port}/api"
    reach.until(lambda: not made.running or reach.answers(browser, url), "Jupyter does not answer")
    assert made.wait(60).code == 1
    assert "Jupyter answers without a token" in made.log()


def arguments(made):
    """The command lines of all processes."""
    code, said = made.execute(["ps", "-eo", "args"])
    assert code == 0
    assert "jupyter" in said
    return said


def connect(url, kernel, headers):
    address = f"{url.replace('http', 'ws', 1)}/api/kernels/{kernel}/channels"
    return websocket.create_connection(address, header=headers, timeout=reach.DEADLINE, http_no_proxy=["*"])


def result_of(code, url, kernel):
    """What a cell prints."""
    session, printed = uuid.uuid4().hex, ""
    request = {"header": {"msg_id": "cell", "msg_type": "execute_request", "username": "", "session": session, "version": "5.3"}}
    content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
    channel = connect(url, kernel, header(TOKEN))
    try:
        channel.send(json.dumps({**request, "channel": "shell", "parent_header": {}, "metadata": {}, "content": content}))
        while True:
            message = json.loads(channel.recv())
            if message["parent_header"].get("msg_id") != "cell":
                continue
            assert message["msg_type"] != "error", message["content"]
            if message["msg_type"] == "stream":
                printed += message["content"]["text"]
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                return printed
    finally:
        channel.close()
