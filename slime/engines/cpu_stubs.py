"""Import stand-ins that let the published SGLang wheel run where there is no GPU toolchain.

SGLang imports `triton`, `sgl_kernel` and `torchvision` at module level, also on its CPU path, which
then never calls them: the `sgl_kernel` wheel holds GPU builds only, `triton` has no CPU wheel, and
the `torchvision` wheel does not fit a CPU build of torch. A stand-in answers any attribute, works
as a decorator (`@triton.jit`), as a base class and in an annotation, and refuses to be *called* as
a function.
"""

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Iterator
from typing import Any

# Version strings that SGLang and transformers compare with their minimum.
STUBBED_VERSIONS = {"sgl_kernel": "0.4.10", "triton": "3.4.0", "torchvision": "0.28.0"}


class _StandInClassType(type):
    """Metaclass of stand-in classes: any public attribute of the class is its own dotted name (enum
    members)."""

    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return f"{cls.__name__}.{name}"


class _StandInClass(metaclass=_StandInClassType):
    """What a capitalised attribute of a stand-in module gives: constructible and usable as a base
    class."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__()


class StandInModule(types.ModuleType):
    """A module in which every attribute exists."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        dotted = f"{self.__name__}.{name}"
        value: Any
        if name[0].isupper():
            value = _StandInClassType(name, (_StandInClass,), {"__module__": self.__name__})
        else:
            value = sys.modules.get(dotted) or StandInModule(dotted)
        setattr(self, name, value)
        return value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Decorate, or raise NotImplementedError."""
        is_bare_decorator = len(args) == 1 and callable(args[0]) and not kwargs
        if is_bare_decorator and not isinstance(args[0], StandInModule):
            return args[0]
        if self.__name__.startswith("triton."):
            return lambda function: (
                function
            )  # a decorator with arguments, such as @triton.autotune(...)
        raise NotImplementedError(f"{self.__name__} has no CPU implementation")

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __bool__(self) -> bool:
        return False


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Serves the stubbed packages and all of their submodules."""

    def find_spec(
        self, fullname: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in STUBBED_VERSIONS:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = StandInModule(spec.name)
        if spec.name in STUBBED_VERSIONS:
            vars(module)["__version__"] = STUBBED_VERSIONS[spec.name]
        if spec.name == "triton":  # helpers that are evaluated while SGLang is imported
            vars(module)["cdiv"] = lambda a, b: -(a // -b)
            vars(module)["next_power_of_2"] = lambda n: 1 << (n - 1).bit_length()
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def install() -> None:
    """Serve the stand-ins for the rest of this process. Call it before SGLang or transformers is
    imported."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
