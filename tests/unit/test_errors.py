"""Exit codes are unique, and the worst of several is the one that the design lists first."""

import errno
import importlib
import pkgutil
from itertools import combinations, permutations

import pytest

import pipeline
from pipeline.errors import SEVERITY, CatalogError, InputError, PipelineError, Temporary, ToolUnfit, of_the_machine, worst


def all_kinds(base: type[PipelineError]) -> list[type[PipelineError]]:
    return [base, *(kind for each in base.__subclasses__() for kind in all_kinds(each))]


def test_every_class_below_the_base_has_an_exit_code_of_its_own() -> None:
    codes = [kind.exit_code for kind in PipelineError.__subclasses__()]
    assert sorted(codes) == [2, 3, 4, 5, 6, 7, 8, 9, 75, 130, 143]


def test_what_derives_from_one_keeps_its_code_wherever_it_is_defined() -> None:
    for module in pkgutil.walk_packages(pipeline.__path__, "pipeline."):
        if not module.name.startswith("pipeline.data") and module.name != "pipeline.__main__":
            importlib.import_module(module.name)
    for direct in PipelineError.__subclasses__():
        assert {kind.exit_code for kind in all_kinds(direct)} == {direct.exit_code}


def test_the_base_itself_is_no_error_that_can_end_a_run() -> None:
    assert not hasattr(PipelineError, "exit_code")
    assert issubclass(PipelineError, Exception)


def test_the_worst_of_several_images_comes_first_in_the_order() -> None:
    assert worst([]) == 0
    assert worst([0, 0]) == 0
    for better in combinations(SEVERITY, 2):
        for order in permutations((*better, 0)):
            assert worst(order) == better[0]


@pytest.mark.parametrize("code", [2, 3, 4, 130, 143])
def test_a_code_outside_the_order_is_not_lost(code: int) -> None:
    assert worst([0, code]) == code


def test_an_error_is_its_message_and_its_hint() -> None:
    assert str(InputError("no image `npl`")) == "no image `npl`"
    assert str(ToolUnfit("`x` is missing", hint="install `x`")) == "`x` is missing\n\nhint: install `x`"


def test_a_catalog_error_lists_all_faults() -> None:
    assert CatalogError(["a:1: x", "b:2: y"]).message == "the catalog has 2 faults\n  a:1: x\n  b:2: y"
    assert CatalogError(["a:1: x"]).message.startswith("the catalog has 1 fault\n")


def test_a_full_disk_and_a_right_that_lacks_are_the_machines() -> None:
    assert isinstance(of_the_machine(OSError(errno.ENOSPC, "No space left on device")), Temporary)
    refused = of_the_machine(PermissionError(errno.EACCES, "Permission denied", "/cache/locks"))
    assert isinstance(refused, InputError)
    assert refused.message == "`/cache/locks` cannot be used: Permission denied"
    renamed = of_the_machine(OSError(errno.EROFS, "Read-only file system", "/tmp/x", None, "/cache/x"))
    assert renamed is not None
    assert renamed.message.startswith("`/cache/x` ")
    assert isinstance(of_the_machine(NotADirectoryError(errno.ENOTDIR, "Not a directory", "/file/locks")), InputError)


@pytest.mark.parametrize(
    "error", [FileNotFoundError(errno.ENOENT, "x", "/x"), OSError("x"), PermissionError(errno.EPERM, "kill")]
)
def test_any_other_fault_of_the_system_is_a_bug(error: OSError) -> None:
    assert of_the_machine(error) is None
