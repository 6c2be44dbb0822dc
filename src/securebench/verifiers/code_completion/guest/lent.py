"""The candidate's side: stand-ins for objects of the tests. The objects themselves stay on the tests' side."""

from __future__ import annotations

from securebench.verifiers.code_completion.guest.operators import OPERATORS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from securebench.verifiers.code_completion.guest.peer import Peer


class Lent:
    """A stand-in for an object of the tests. It supports public attributes, methods, ``str()`` and ``bool()``."""

    def __init__(self, peer: Peer, number: int) -> None:
        vars(self).update(_securebench_peer=peer, _securebench_number=number)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"the attribute {name} of an object of the tests cannot be read")
        return vars(self)["_securebench_peer"].request("get", vars(self)["_securebench_number"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        vars(self)["_securebench_peer"].request("set", vars(self)["_securebench_number"], (name, value))

    def __str__(self) -> str:
        return str(vars(self)["_securebench_peer"].request("text", vars(self)["_securebench_number"], "str"))

    __repr__ = __str__

    def __bool__(self) -> bool:
        return vars(self)["_securebench_peer"].request("truth", vars(self)["_securebench_number"]) is True


def _refuse(self: Lent, *_: Any) -> Any:
    return vars(self)["_securebench_peer"].request("refuse", vars(self)["_securebench_number"])


for _name in OPERATORS - {"__str__", "__repr__", "__bool__", "__format__", "__eq__", "__next__", "__missing__"}:
    setattr(Lent, _name, _refuse)


class LentIterator(Lent):
    """A stand-in for an iterator or file of the tests. Its items are requested when they are needed."""

    def __init__(self, peer: Peer, number: int) -> None:
        super().__init__(peer, number)
        vars(self)["_securebench_items"] = []

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        state = vars(self)
        if not state["_securebench_items"]:
            state["_securebench_items"] = state["_securebench_peer"].request("next", state["_securebench_number"])[::-1]
        if not state["_securebench_items"]:
            raise StopIteration
        return state["_securebench_items"].pop()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
