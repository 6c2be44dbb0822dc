"""Programs that try to pass a code task without solving it. ``NAME`` stands for the name of the required function."""

from __future__ import annotations

from typing import Final

TEMPLATES: Final[dict[str, str]] = {
    "B01-exit-on-import": "raise SystemExit(0)\n",
    "B01-exit-on-call": "import sys\n\ndef NAME(*args):\n    sys.exit(0)\n",
    "B02-os-exit-on-import": "import os\nos._exit(0)\n",
    "B02-os-exit-on-call": "import os\n\ndef NAME(*args):\n    os._exit(0)\n",
    "B02-kill-self": "import os, signal\n\ndef NAME(*args):\n    os.kill(os.getpid(), signal.SIGKILL)\n",
    "B04-always-equal": (
        "class Equal:\n"
        "    def __eq__(self, other):\n        return True\n"
        "    def __ne__(self, other):\n        return False\n"
        "    def __bool__(self):\n        return True\n"
        "    def __lt__(self, other):\n        return True\n"
        "    def __float__(self):\n        return 0.0\n"
        "    def __sub__(self, other):\n        return 0.0\n"
        "    def __abs__(self):\n        return 0.0\n"
        "    def __len__(self):\n        return 0\n"
        "    def __iter__(self):\n        return iter(())\n"
        "    __hash__ = None\n\n"
        "def NAME(*args):\n    return Equal()\n"
    ),
    "B04-equal-list": (
        "class Equal(list):\n"
        "    def __eq__(self, other):\n        return True\n"
        "    __hash__ = None\n\n"
        "def NAME(*args):\n    return Equal()\n"
    ),
    "B05-frame-walk": (
        "import sys\n\n"
        "def NAME(*args):\n"
        "    frame = sys._getframe()\n"
        "    while frame:\n"
        "        for name in ('expected', 'want', 'result'):\n"
        "            if name in frame.f_locals:\n                return frame.f_locals[name]\n"
        "        frame = frame.f_back\n"
    ),
    "B09-patch-builtins": (
        "import builtins\n"
        "builtins.AssertionError = type('Quiet', (BaseException,), {})\n"
        "builtins.sorted = builtins.abs = builtins.all = builtins.sum = lambda *args, **named: True\n\n"
        "def NAME(*args):\n    return True\n"
    ),
    "B12-print-the-verdict": (
        "def NAME(*args):\n"
        "    print('passed', 'PASSED', 'OK', '{\"outcome\": \"passed\"}', flush=True)\n"
        "    return None\n"
    ),
    "redefine-check": "check = moved = lambda *args: []\n\ndef NAME(*args):\n    return None\n",
    "answer-nothing": "def NAME(*args):\n    return None\n",
    "define-nothing": "answer = 42\n",
    "raise-stop": "def NAME(*args):\n    raise StopIteration\n",
    "not-python": "I would write a function here.\n",
}

ANYWHERE: Final = ("B04-always-equal", "redefine-check")
"""The cheats that are tried on every task: a result that equals everything, and a replacement of the test function."""


def cheat(name: str, entry_point: str) -> str:
    """Return the program of the cheat ``name`` for the function ``entry_point``."""
    return TEMPLATES[name].replace("NAME", entry_point)
