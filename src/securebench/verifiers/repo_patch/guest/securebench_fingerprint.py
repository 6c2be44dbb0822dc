"""Fingerprints the code that tests depend on: a digest per function and class of some modules.

Fingerprints contain ``id()`` values, so two fingerprints can be compared only if they were taken in the same process.
A comparison ignores the following changes, because honest code makes them:

* an attribute with a plain value, such as ``TestCase.maxDiff``, has another value
* a name in ``IGNORED_NAMES`` refers to another function
* a new name appears, unless it hides a builtin or an inherited method, or is the name of a special method

Before the candidate's code runs, the functions that are needed later are stored in local variables, so that the
candidate cannot replace them.
"""

import builtins
import functools
import importlib
import operator
import os
import sys
import threading
import types
from hashlib import sha256
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from typing import Any

ALWAYS = (
    "unittest.case",
    "unittest.suite",
    "unittest.loader",
    "unittest.result",
    "unittest.util",
    "_frozen_importlib",
    "_frozen_importlib_external",
)
"""Modules in every fingerprint."""

IGNORED_NAMES = frozenset(
    [
        "builtins:_",
        "builtins:print",
        "builtins:input",
        "builtins:open",
        "_pytest.config:Config._getini_unknown_type",
        "_pytest.fixtures:FixtureFunctionMarker.__call__",
        "_pytest.unittest:TestCaseFunction.failfast",
    ]
)
"""Names to ignore, because ``sys.displayhook``, mocks, legacypath, pytest-subtests and Hypothesis may replace them."""

_RESULT = "_pytest.unittest:TestCaseFunction."
PLUGIN_REPLACEMENTS = {
    _RESULT + "addSkip": "pytest_subtests.plugin:_addSkip",
    _RESULT + "addSubTest": "pytest_subtests.plugin:_addSubTest",
}
"""Names that plugins replace when pytest is configured, each with the only replacement that is allowed."""

TRACERS = ("sys:settrace", "sys:setprofile", "sys:monitoring", "threading:hooks")

SPOTS = 8
"""This many tests are chosen at random. The fingerprint is always compared before each of them.

Before other tests, it is compared only if a function or class was replaced. A comparison takes about 30 ms.
"""

_PLAIN = (int, float, complex, str, bytes, bool, type(None), type(Ellipsis))
_NOT_DESCRIBED = ("__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__firstlineno__", "_abc_impl")
_DEPTH = 4
_DEFINED = (types.FunctionType, types.BuiltinFunctionType, type, staticmethod, classmethod, property)


def fingerprinter(modules: Any, libraries: Any, repository: Any, unloaded: Any = None) -> Any:
    """Return a function that fingerprints ``modules``, and the assertions of ``libraries``.

    ``NAME.*`` means all loaded submodules of a package. Libraries are imported, except those below ``repository``,
    which would be the candidate's code. ``unloaded`` is the dict of modules that ``unload_package`` fills. The
    returned function has an attribute ``quick_check``: a much faster function, whose result changes if a function or
    class is replaced.
    """
    held, kept = {}, []  # type: Any, Any
    for name in ["builtins", *ALWAYS, *_whole(modules)]:
        held[name] = _load(name)
    assertions = {name: _load(name) for name in libraries if _is_foreign(name.partition(".")[0], repository)}
    before = _basic_finders(), list(sys.path_hooks)
    of_module, of_assertions, of_system, digest = _of_module, _of_assertions, _of_system, _digest
    loaded, ignored, of_plugin_replacements = sys.modules, IGNORED_NAMES, _of_plugin_replacements
    absent, alike = {} if unloaded is None else unloaded, _alike

    def take() -> Any:
        found = {}  # type: Any
        for name, module in held.items():
            if module is not None:
                of_module(name, vars(module), found, kept)
                now = loaded.get(name)
                if name in absent and (now is None or alike(module, now)):
                    now = module
                found["sys.modules:" + name] = digest(str(id(now)))
        for name, module in assertions.items():
            if module is not None:
                of_assertions(name, vars(module), found, kept)
        of_system(before, found)
        of_plugin_replacements(loaded, found, kept)
        return {key: value for key, value in found.items() if key not in ignored}

    take.quick_check = _quick_check(list(held.values()) + list(assertions.values()))  # type: ignore[attr-defined]
    return take


def _quick_check(modules: Any) -> Any:
    """Return a function that lists the ``id()`` of the functions and classes in ``modules``, and of their code."""
    views, functions = [], []  # type: Any, Any
    for scope in _scopes(modules):
        names = [name for name, value in list(scope.items()) if issubclass(type(value), _DEFINED)]
        functions += [scope[name] for name in names if type(scope[name]) is types.FunctionType]
        if len(names) > 1:  # with one name, itemgetter returns no tuple
            views.append((scope, operator.itemgetter(*names)))
    code, missing, each, size, make, identity = operator.attrgetter("__code__"), KeyError, map, len, list, id

    def quick_check() -> Any:
        try:
            return [[size(scope), *each(identity, values(scope))] for scope, values in views] + make(
                each(identity, each(code, functions))
            )
        except missing:
            return None

    return quick_check


def _scopes(modules: Any) -> Any:
    """Return the attributes of ``modules`` and of the classes that they define. Lazy objects are not loaded."""
    found = []  # type: Any
    for module in modules:
        if module is not None:
            found.append(vars(module))
            found += [
                vars(value)
                for value in list(vars(module).values())
                if issubclass(type(value), type) and value.__module__ == module.__name__
            ]
    return found


def unload_package(package: Any, unloaded: Any) -> Any:
    """Remove the modules of ``package`` from ``sys.modules``, and return a function to call after test collection.

    An import of the package during collection puts the same modules back. The dict ``unloaded`` receives the modules,
    and is emptied when they are put back.
    """
    # Call this function only if no other code has loaded the package.
    # Tests that restore sys.modules, such as those with pytest's pytester, load copies of the package and unload them.
    # If the modules stayed loaded, these tests would use them instead, and share their state.
    loaded, finders, make = sys.modules, sys.meta_path, ModuleSpec
    unloaded.update({name: module for name, module in loaded.items() if (name + ".").startswith(package + ".")})
    for name in unloaded:
        del loaded[name]
    modules = dict(unloaded)
    specs = {name: module.__spec__ for name, module in modules.items()}

    class Finder(Loader):
        """Finds the modules that were removed from ``sys.modules``."""

        def find_spec(self, name: Any, *_: Any) -> Any:
            return make(name, self) if name in unloaded else None

        def create_module(self, spec: Any) -> Any:
            return modules[spec.name]

        def exec_module(self, module: Any) -> None:
            """Put the whole package back into ``sys.modules``, and restore the spec that the import system replaced."""
            loaded.update(modules)
            unloaded.clear()
            module.__spec__ = specs[module.__name__]

    finder = Finder()
    finders.insert(0, finder)

    def end(used: Any) -> None:
        """Let imports load new copies of modules that were not put back.

        If the tests use the package (``used``), each new copy changes the fingerprint.
        """
        finders[:] = [other for other in finders if other is not finder]
        if used:
            unloaded.clear()  # a fingerprint ignores only copies of modules in ``unloaded``

    return end


def _alike(module: Any, other: Any) -> bool:
    """Return whether ``other`` has all functions and methods of ``module``, with the same code.

    This is true if ``other`` is a second copy of ``module``.
    """
    now = _codes(other)
    return all(now.get(name) == code for name, code in _codes(module).items())


def _codes(module: Any) -> Any:
    """Describe the code of each function and method of a module."""
    found = {}
    for key, value in list(vars(module).items()):
        for name, member in list(vars(value).items() if isinstance(value, type) else [("", value)]):
            function = getattr(member, "__func__", member)
            if isinstance(function, types.FunctionType):
                found[key, name] = _code(function.__code__)
    return found


def load(modules: Any) -> None:
    """Load the runner's own ``modules``, and what they import."""
    for name in _whole(modules):
        _load(name)


def _whole(modules: Any) -> Any:
    """Expand each ``NAME.*`` of ``modules`` to the loaded submodules of that package."""
    found = []  # type: Any
    for name in modules:
        prefix = name[:-1]
        found += sorted(one for one in sys.modules if one.startswith(prefix)) if name.endswith(".*") else [name]
    return found


def _basic_finders() -> Any:
    """Return the import finders of Python and pytest. Packages may add and remove finders of their own."""
    names = ("BuiltinImporter", "FrozenImporter", "PathFinder", "AssertionRewritingHook")
    return [entry for entry in sys.meta_path if getattr(entry, "__name__", type(entry).__name__) in names]


def _of_system(before: Any, found: Any) -> None:
    """Add digests of Python's import hooks and tracers to ``found``. Import hooks not in ``before`` are ignored."""
    for name, first, now in (
        ("sys:meta_path", before[0], list(sys.meta_path)),
        ("sys:path_hooks", before[1], list(sys.path_hooks)),
    ):
        # The order matters: a hook that is moved to the front is called before the others.
        found[name] = _digest(str([id(entry) for entry in now if any(entry is other for other in first)]))
    found["sys:settrace"] = _digest("off" if sys.gettrace() is None else "on")
    found["sys:setprofile"] = _digest("off" if sys.getprofile() is None else "on")
    monitoring = getattr(
        sys, "monitoring", None
    )  # since Python 3.12; tools such as debuggers and profilers have numbers 0 to 5
    tools = [None] if monitoring is None else [monitoring.get_tool(number) for number in range(6)]
    found["sys:monitoring"] = _digest("off" if tools == [None] * len(tools) else "on")
    hooks = [getattr(threading, "_trace_hook", None), getattr(threading, "_profile_hook", None)]
    found["threading:hooks"] = _digest("off" if hooks == [None, None] else "on")


def _of_plugin_replacements(loaded: Any, found: Any, kept: Any) -> None:
    """Add to ``found`` the functions with which loaded plugins replace other functions.

    If pytest's class ``TestCaseFunction`` has no ``addSubTest``, also record that it is absent.
    """
    if "_pytest.unittest" in loaded:
        found.setdefault(_RESULT + "addSubTest", _digest("absent"))
    for place in PLUGIN_REPLACEMENTS.values():
        module, _, name = place.partition(":")
        if module in loaded:
            found[place] = _digest(_described(vars(loaded[module]).get(name), kept, 0))


def honest(before: Any, after: Any) -> Any:
    """Return ``after`` with the digests of ``before`` where the difference is honest.

    There are two honest differences. Tracers are off, because coverage tools end with the tests. A function of a plugin
    has replaced another function, and the plugin's function existed before and is unchanged.
    """
    off = _digest("off")
    after.update({key: value for key, value in before.items() if key in TRACERS and after.get(key) == off})
    for key, place in PLUGIN_REPLACEMENTS.items():
        if key in before and place in before and after.get(key) == before[place]:
            after[key] = before[key]
    return after


def changed_between(before: Any, now: Any) -> Any:
    """Return the names whose values in ``before`` and ``now`` differ.

    Tracers and ``__import__`` are left out, because tests may replace them.
    """
    return [key for key in before if now.get(key) != before[key] and key not in (*TRACERS, "builtins:__import__")]


def watcher(take: Any, before: Any, say: Any) -> Any:
    """Return ``choose`` and ``look``, which report temporary changes.

    Call ``choose`` after collection with the (key, name) pairs of the tests. If the tests are collected in several
    parts, call ``choose`` once for each part, with the number of parts as ``groups``. ``choose`` picks tests at random.
    It also compares fingerprints immediately, because code may have tampered with the collection.

    Call ``look`` before each test with the test's key. ``look`` compares fingerprints if the test was chosen, or if a
    function or class was replaced.
    """
    allow, differs, ordered, most, spots = honest, changed_between, sorted, SPOTS, set()  # type: Any, Any, Any, Any, Any
    secret, sha, quick_check, seen = os.urandom(16), sha256, take.quick_check, []  # type: Any, Any, Any, Any

    def chance(test: Any) -> Any:
        return sha(secret + test[1].encode("utf-8", "replace")).digest()

    def compare() -> None:
        for name in differs(before, allow(before, take()))[:5]:
            say("changed", name)

    def choose(tests: Any, groups: int = 1) -> None:
        spots.update([key for key, _ in ordered(tests, key=chance)[: -(-most // groups)]])
        compare()
        seen[:] = [quick_check()]

    def look(key: Any) -> None:
        now = quick_check()
        if key in spots or seen != [now]:
            spots.discard(key)
            seen[:] = [now]
            compare()

    return choose, look


def _load(name: Any) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _is_foreign(name: Any, repository: Any) -> bool:
    """Return whether the package ``name`` is installed outside the repository."""
    spec = find_spec(name)
    origin = getattr(spec, "origin", None)
    return origin is not None and not origin.startswith(repository.rstrip("/") + "/")


def _of_module(name: Any, scope: Any, found: Any, kept: Any) -> None:
    """Add to ``found`` what the module ``name`` defines, and which functions and modules its names refer to."""
    hidden = sorted(key for key in scope if key in vars(builtins) and not key.startswith("__"))
    if name != "builtins":
        found[name + ":hides"] = _digest(str(hidden))
    for key, value in list(scope.items()):
        if isinstance(value, type) and value.__module__ == name and name != "builtins":
            _of_class(name + ":" + key, value, found, kept)
        elif isinstance(value, types.ModuleType) or callable(value):
            found[name + ":" + key] = _digest(_described(value, kept, 0))


def _of_class(name: Any, cls: Any, found: Any, kept: Any) -> None:
    """Add to ``found`` the bases and methods of a class, and which methods are special or hide inherited names."""
    found[name] = _digest(str([id(base) for base in cls.__mro__]) + str(id(type(cls))))
    kept.extend(cls.__mro__)
    inherited = set()  # type: Any
    for base in cls.__mro__[1:]:
        inherited.update(vars(base))
    members = {key: value for key, value in vars(cls).items() if key not in _NOT_DESCRIBED and _acts(value)}
    hidden = sorted(key for key in members if key in inherited or key.startswith("__"))
    found[name + ".hides"] = _digest(str(hidden))
    for key, value in members.items():
        found[name + "." + key] = _digest(_described(value, kept, 0))


def _acts(value: Any) -> bool:
    """Return whether an attribute is a method, class or descriptor, and not a plain value, which may vary."""
    return not isinstance(value, _PLAIN) and (callable(value) or hasattr(type(value), "__get__"))


def _of_assertions(name: Any, scope: Any, found: Any, kept: Any) -> None:
    """Add to ``found`` the functions and methods of a library that are named like assertions."""
    for key, value in list(scope.items()):
        is_class = issubclass(type(value), type)  # isinstance would load Django's lazy settings
        if "assert" in key.lower() and callable(value) and not is_class:
            found[name + ":" + key] = _digest(_described(value, kept, 0))
        elif is_class:
            for method, function in list(vars(value).items()):
                if "assert" in method.lower() and callable(function):
                    found[name + ":" + key + "." + method] = _digest(_described(function, kept, 0))


def _described(value: Any, kept: Any, depth: Any) -> str:
    """Describe ``value``: functions by their code, even inside wrappers; plain values by repr; the rest by identity."""
    kept.append(value)  # so that its id() is not reused
    if isinstance(value, types.FunctionType):
        return "deep" if depth > _DEPTH else "function(" + ",".join(_parts(value, kept, depth + 1)) + ")"
    if isinstance(value, _PLAIN):
        return type(value).__name__ + repr(value)
    inner: Any = []
    if isinstance(value, (staticmethod, classmethod)):
        inner = [value.__func__]
    elif isinstance(value, property):
        inner = [value.fget, value.fset, value.fdel]
    elif isinstance(value, functools.partial):
        inner = [value.func]
    else:
        wrapped = vars(value).get("__wrapped__") if hasattr(value, "__dict__") else None
        inner = [id(value)] if wrapped is None else [id(value), wrapped]
    return type(value).__name__ + "".join([_described(part, kept, depth + 1) for part in inner])


def _parts(function: Any, kept: Any, depth: Any) -> Any:
    parts = [_code(function.__code__), str(id(function.__globals__))]
    defaults = (function.__defaults__ or ()) + tuple((function.__kwdefaults__ or {}).values())
    parts += [_described(default, kept, depth) for default in defaults]
    for cell in function.__closure__ or ():
        try:
            parts.append(_described(cell.cell_contents, kept, depth))
        except ValueError:  # an empty cell
            parts.append("empty")
    return parts


def _code(code: Any) -> str:
    """Describe a code object without its file and lines."""
    parts = [code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_flags]
    parts.append(getattr(code, "co_exceptiontable", b""))  # since Python 3.11
    parts += [_code(const) if isinstance(const, types.CodeType) else _text(const) for const in code.co_consts]
    return "|".join([str(part) for part in parts])


def _text(const: Any) -> str:
    return type(const).__name__ + (str(sorted(map(repr, const))) if isinstance(const, frozenset) else repr(const))


def _digest(text: Any) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
