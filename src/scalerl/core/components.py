"""Components: one file each, found by its name, and nothing else than its settings.

A *family* (losses, laws, importers ...) is a package whose `__init__` defines an abstract base:

    # scalerl/curves/laws/__init__.py
    class Law(Component, family="laws"): ...

and a component is a module of that package which defines one concrete subclass of the base. The file's name is the
component's name: `curves/laws/sigmoid.py` is what `type = "sigmoid"` selects. There is no registry to edit. Somebody
else's package adds components by one entry point per family, which may name a module or a package of modules:

    [project.entry-points."scalerl.laws"]
    mine = "my_package.laws"          # every module in it is a law

A component is a frozen pydantic model: its fields are the settings, units in their docstrings. Annotating a field of
another model with the base (`loss: Loss`) makes it read `"cispo"` or `{"type": "cispo", "cap": 5.0}`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeGuard, get_args, get_origin

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, ValidationError, ValidationInfo, field_validator
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from scalerl.core.errors import ScalerlError, UsageError, unknown_name

if TYPE_CHECKING:
    from types import ModuleType


class Settings(BaseModel):
    """A frozen record that a person writes: unknown keys are errors, field docstrings are their documentation."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    @field_validator("*", mode="before")
    @classmethod
    def _not_boolean(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse true and false where no boolean is asked for: read as 1 and 0 they would hide a mistake."""
        if _only_numbers(cls.model_fields[str(info.field_name)].annotation):
            for item in value if isinstance(value, (list, tuple)) else [value]:
                if isinstance(item, bool):
                    raise ValueError(f"'{str(item).lower()}' is no number")
        return value


def _only_numbers(annotation: Any) -> bool:
    """Whether an annotation asks for numbers and nothing else: `float`, `int | None`, `tuple[int, ...]`."""
    parts = get_args(annotation)[:1] if get_origin(annotation) is Annotated else get_args(annotation)
    return all(_only_numbers(part) for part in parts) if parts else annotation in (int, float, NoneType, Ellipsis)


def is_base(model: type[BaseModel]) -> TypeGuard[type[Component]]:
    """Whether `model` is a family's base, so that what it annotates selects a component."""
    return "family" in vars(model) and issubclass(model, Component)


class Component(Settings):
    """A selectable part of the system; subclass a family's base, one per file."""

    family: ClassVar[Family]

    def __init_subclass__(cls, *, family: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if family is not None:
            cls.family = Family(family, base=cls)

    @classmethod
    def name(cls) -> str:
        """The name a recipe selects this component by: its file's."""
        return cls.__module__.rpartition(".")[2]

    def selection(self) -> dict[str, Any]:
        """The component as a recipe writes it: its `type` and its settings."""
        return {"type": self.name(), **self.model_dump(mode="json", exclude_none=True)}

    def why_unusable(self) -> UsageError | None:
        """The error of a component that can be described but not put to work; None for one that can."""
        return None

    def check_usable(self) -> None:
        """Raise the error of `why_unusable`, if there is one; called before a run spends anything."""
        if (error := self.why_unusable()) is not None:
            raise error

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Validate an annotation of a family's base by selecting the component; a concrete class by its fields."""
        if is_base(cls):
            return core_schema.no_info_plain_validator_function(
                cls.family.selected, serialization=core_schema.plain_serializer_function_ser_schema(Component.selection)
            )
        return handler(source)


class Family:
    """The components of one kind: those of the package that defines `base`, and those of installed plug-ins."""

    def __init__(self, name: str, *, base: type[Component]) -> None:
        self.name = name
        self.base = base
        self.package = base.__module__

    def __repr__(self) -> str:
        return f"Family({self.name!r})"

    @property
    def kind(self) -> str:
        """What one component of the family is called, in words: 'loss', 'length control'."""
        return re.sub(r"(?<!^)(?=[A-Z])", " ", self.base.__name__).lower()

    @property
    def entry_point_group(self) -> str:
        """The entry-point group under which a plug-in announces its components of this family."""
        return f"scalerl.{self.name}"

    def modules(self) -> dict[str, str]:
        """Every component's name and the module that defines it, sorted by name, without importing any of them.

        Raises:
            UsageError: two files claim one name.
        """
        found: dict[str, str] = {}
        for name, module in [*_modules_of(self.package), *self._plugin_modules()]:
            if found.setdefault(name, module) != module:
                raise UsageError(
                    f"two {self.name} are called '{name}'",
                    where=f"{found[name]} and {module}",
                    remedy="rename one of the two files or uninstall its package",
                )
        return dict(sorted(found.items()))

    def names(self) -> list[str]:
        """The names that can be selected, sorted."""
        return list(self.modules())

    def get(self, name: str) -> type[Any]:
        """The component class called `name`.

        Raises:
            UnknownNameError: there is none; the message proposes the nearest.
            UsageError: its file does not define exactly one component, or is a plug-in's and cannot be imported.
        """
        modules = self.modules()
        if name not in modules:
            raise unknown_name(self.kind, name, modules)
        return self._component_of(self._imported(modules[name]))

    def classes(self) -> dict[str, type[Any]]:
        """Every component class by name. Imports them all: for tests and listings."""
        return {name: self._component_of(self._imported(module)) for name, module in self.modules().items()}

    def select(self, selection: str | Mapping[str, Any]) -> Any:
        """The component that a recipe writes as `"name"` or `{"type": "name", **settings}`.

        Raises:
            UnknownNameError: no component of that name.
            UsageError: there is no type, or the settings do not fit it.
        """
        try:
            return self._validated(selection)
        except ValidationError as error:
            first = error.errors()[0]
            name = selection if isinstance(selection, str) else selection["type"]
            key = ".".join(map(str, first["loc"])) or "settings"
            remedy = f"write {{'type': '{name}', '{key}': ...}}" if first["type"] == "missing" else "mend it"
            raise UsageError(f"its {key} cannot be used ({first['msg']})", where=f"{self.kind} '{name}'", remedy=remedy) from None

    def _validated(self, selection: str | Mapping[str, Any]) -> Any:
        settings = {"type": selection} if isinstance(selection, str) else dict(selection)
        name = settings.pop("type", None)
        if not isinstance(name, str):
            raise UsageError(f"'type' is missing: one of the {self.name}", remedy="choose one of " + ", ".join(self.names()))
        return self.get(name).model_validate(settings)

    def selected(self, value: Any) -> Any:
        """`select` as a pydantic validator: what is wrong becomes a validation error at the component's place."""
        if isinstance(value, self.base):
            return value
        if not isinstance(value, (str, Mapping)):
            raise PydanticCustomError("component", "a name or a table with 'type' selects one of the {family}", {"family": self.name})
        try:
            return self._validated(value)
        except ScalerlError as error:
            raise PydanticCustomError("selection", "{what}", {"what": error.what, "remedy": error.remedy}) from error
        except ValidationError as error:
            # A nested ValidationError would be flattened to text: carry its list, so that paths can be joined.
            raise PydanticCustomError("settings", "its settings are wrong", {"errors": error.errors(), "model": error.title}) from error

    def _plugin_modules(self) -> Iterator[tuple[str, str]]:
        for module in plugin_modules(self.entry_point_group):
            with importing_plugin(module):
                is_package = _search_locations(module) is not None
            yield from _modules_of(module) if is_package else [(module.rpartition(".")[2], module)]

    def _imported(self, module: str) -> ModuleType:
        if module.rpartition(".")[0] == self.package:
            return importlib.import_module(module)
        with importing_plugin(module):
            return importlib.import_module(module)

    def _component_of(self, module: ModuleType) -> type[Component]:
        classes = [
            value
            for value in vars(module).values()
            if isinstance(value, type)
            and issubclass(value, self.base)
            and value.__module__ == module.__name__
            and not inspect.isabstract(value)
        ]
        if len(classes) != 1:
            raise UsageError(
                f"{len(classes)} classes derive from {self.base.__name__}",
                where=module.__file__,
                remedy=f"define exactly one concrete subclass of {self.package}.{self.base.__name__} in the file",
            )
        return classes[0]


@lru_cache(maxsize=128)
def _entry_points(group: str, search_path: tuple[str, ...]) -> tuple[importlib.metadata.EntryPoint, ...]:  # noqa: ARG001
    """The entry points of a group, read once per `search_path`: scanning the installed packages takes tens of milliseconds."""
    return tuple(importlib.metadata.entry_points(group=group))


def plugin_modules(group: str) -> list[str]:
    """The modules and packages that installed plug-ins name under an entry-point `group`."""
    return [entry_point.module for entry_point in _entry_points(group, tuple(sys.path))]


@contextmanager
def importing_plugin(module: str) -> Iterator[None]:
    """Tell whatever goes wrong while a plug-in's `module` is imported as a UsageError that names it."""
    try:
        yield
    except Exception as error:  # Somebody else's code runs here, and may fail in any way.
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(f"this plug-in cannot be imported ({reason})", where=module, remedy="mend or uninstall it") from error


def _search_locations(module: str) -> list[str] | None:
    """The folders of a package; None for a plain module and for one that does not exist."""
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        return None
    return spec.submodule_search_locations if spec else None


def _modules_of(package: str) -> Iterator[tuple[str, str]]:
    """The public modules directly inside `package` as (name, dotted path)."""
    for info in pkgutil.iter_modules(_search_locations(package) or []):
        if not info.name.startswith("_") and not info.ispkg:
            yield info.name, f"{package}.{info.name}"
