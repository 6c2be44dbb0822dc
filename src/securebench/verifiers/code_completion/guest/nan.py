"""The tests' side: NaNs of the candidate, which note when the tests compare them with ``<`` or ``>``.

``if abs(found - wanted) > tolerance: raise`` accepts a NaN, because every ``<`` and ``>`` with it is False. Tests that
name ``nan`` or ``isnan`` handle NaNs, and get a plain NaN. For all other tests, NaNs are objects of a class that notes
comparisons: such a comparison fails the candidate. But a NaN loses this class in complex numbers, in arrays and in
functions written in C, such as ``math.fabs``. Therefore a candidate that sends a NaN fails at once if the tests use
``<`` or ``>`` without asserting that the comparison is True.
"""

from __future__ import annotations

from securebench.verifiers.code_completion.guest.notes import NAN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from securebench.verifiers.code_completion.guest.notes import Notes

_INFINITY = float("inf")
_ORDER = ("lt", "le", "gt", "ge")
_ARITHMETIC = (
    *("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "floordiv", "rfloordiv", "mod", "rmod"),
    *("pow", "rpow", "neg", "pos", "abs", "round", "divmod", "rdivmod"),
)


def nan_maker(source: str, notes: Notes) -> Callable[[], float]:
    """Return the function that makes NaNs for tests with this ``source``, as the module describes.

    Called when the candidate sends its first NaN.
    """
    import re

    if re.search(r"(?i)\b(is)?nan\b", source):
        return lambda: float("nan")
    from securebench.verifiers.code_completion.guest.arguments import orders_without_assert

    if orders_without_assert(source):
        notes.reject(NAN)
    return _watching(notes)


def _watching(notes: Notes) -> type[float]:
    """Return a class of NaNs that note comparisons with ``<``, ``<=``, ``>`` and ``>=``.

    Results of arithmetic keep this class.
    """

    def compared(*_: Any) -> bool:
        notes.reject(NAN)
        return False

    def computed(name: str) -> Any:
        plain = getattr(float, f"__{name}__")

        def compute(*operands: Any) -> Any:
            value = plain(*operands)
            return Nan() if type(value) is float and value - value != 0 and abs(value) != _INFINITY else value

        return compute

    class Nan(float):
        def __new__(cls) -> Any:
            return super().__new__(cls, "nan")

    for name in _ORDER:
        setattr(Nan, f"__{name}__", compared)
    for name in _ARITHMETIC:
        setattr(Nan, f"__{name}__", computed(name))
    Nan.__name__ = Nan.__qualname__ = "float"
    return Nan
