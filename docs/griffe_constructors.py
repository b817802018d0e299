"""Kinds that take the constructor of their abstract class by name show its arguments."""

import griffe


class Constructors(griffe.Extension):
    """`__init__ = AbstractTempered.__init__` in a class body is that function."""

    def on_package(self, *, pkg: griffe.Module, **_) -> None:
        """When all modules are read."""
        for cls in _classes(pkg):
            own = cls.members.get("__init__")
            if isinstance(own, griffe.Attribute):
                parent = cls.module[str(own.value).removesuffix(".__init__")]
                cls.members["__init__"] = (parent.final_target if parent.is_alias else parent).members["__init__"]


def _classes(scope: griffe.Module):
    for member in scope.members.values():
        if isinstance(member, griffe.Module):
            yield from _classes(member)
        elif isinstance(member, griffe.Class):
            yield member
