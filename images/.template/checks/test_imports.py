"""What the image is for can be imported."""

import sys


def test_python_is_the_one_of_the_virtual_environment():
    assert sys.prefix == "/opt/venv"
