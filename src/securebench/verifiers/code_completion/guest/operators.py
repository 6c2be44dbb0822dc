"""The names of the methods that Python's operators, and functions such as ``len``, call."""

from __future__ import annotations

OPERATORS = frozenset(
    f"__{name}__"
    for name in (
        *("len", "bool", "iter", "next", "reversed", "contains", "getitem", "setitem", "delitem", "missing", "enter"),
        *("exit", "aenter", "aexit", "aiter", "anext", "int", "float", "index", "complex", "round", "bytes", "format"),
        *("neg", "pos", "abs", "invert", "trunc", "floor", "ceil", "eq", "lt", "le", "gt", "ge", "str", "repr"),
        *(
            prefix + name
            for prefix in ("", "r", "i")
            for name in (
                *("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor"),
                *("lshift", "rshift"),
            )
        ),
        *("divmod", "rdivmod"),
    )
)
