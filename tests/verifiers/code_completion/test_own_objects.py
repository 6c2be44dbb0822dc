"""Tests that use a candidate's own classes: honest classes work as in plain Python, and classes that cheat fail."""

# ruff: noqa: E501 - each program is one text

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from securebench.errors import FailureReason
from securebench.testing.judging.code import judge
from securebench.verifiers.code_completion.guest.codec import Exchange
from securebench.verifiers.code_completion.guest.plain import MalformedError
from securebench.verifiers.code_completion.guest.tests import JudgingPeer
from securebench.verifiers.code_completion.relay import explain

if TYPE_CHECKING:
    from securebench.testing.scripted_sandbox import ScriptedDriver


HONEST = {
    "a dataclass with a field that it does not compare": (
        (
            "from dataclasses import dataclass, field\n@dataclass(order=True)\nclass P:\n    rank: int\n"
            "    name: str = field(default='', compare=False)\ndef f(): return P(1, 'a')"
        ),
        "assert f() == P(1, 'a') == P(1, 'b') and f() != P(2, 'a') and f() < P(2)",
    ),
    "an ordered dataclass with a sort key and a default": (
        (
            "from dataclasses import dataclass, field\n@dataclass(order=True)\nclass P:\n"
            "    key: int = field(init=False, repr=False)\n    age: int\n    minor: int = 0\n"
            "    name: str = field(default='', compare=False)\n    def __post_init__(self): self.key = -self.age\n"
            "def f(n): return P(n, 1, 'n')"
        ),
        "assert f(3) < P(2) and P(3, 0, 'x') < f(3) and f(3) <= P(3, 1, 'n') and sorted([f(1), f(2)])[0].age == 2",
    ),
    "a dataclass that is changed": (
        (
            "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\n    def more(self): self.x += 1\n"
            "    def __iadd__(self, n): self.x += n; return self\ndef f(x): return P(x)"
        ),
        (
            "p = P(1)\np.x = 2\nassert p == P(2) == f(2) and p != P(1)\np.more()\nassert p == P(3) == f(3)\n"
            "p += 1\nassert p == P(4) and f(4) == p"
        ),
    ),
    "a dataclass after a callback got a value that cannot be sent": (
        (
            "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\ndef f(g):\n    deep = []\n"
            "    for _ in range(10_000): deep = [deep]\n    try: g([P(1), deep])\n    except ValueError: return 0\n"
            "def made(): return P(2)"
        ),
        "def g(x): return 1\nassert f(g) == 0\nassert made().x == 2",
    ),
    "a dataclass without fields": (
        "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass P: pass\ndef f(): return P()",
        "assert f() == P()",
    ),
    "a dataclass with one object": (
        "from dataclasses import dataclass\n@dataclass\nclass P:\n    n: int = 1\nONE = P()\ndef f(): return ONE",
        "assert f() is f() and f() == f() == P(1)",
    ),
    "copies": (
        "class N:\n    def __init__(self, v): self.v = v",
        (
            "import copy\na = N([1])\nb, c = copy.deepcopy([a])[0], copy.copy(a)\n"
            "assert b.v == c.v == [1] and b is not a and isinstance(b, N)"
        ),
    ),
    "nodes of the tests' own": (
        "def f(head):\n    last = None\n    while head: head.next, last, head = last, head, head.next\n    return last",
        "class Node:\n    def __init__(self, val, next=None): self.val, self.next = val, next\nend = f(Node(1, Node(2)))\nassert end.val == 2 and end.next.val == 1 and not end.next.next",
    ),
    "truth of the tests' own objects": (
        "def f(x): return bool(x), not x",
        "class T:\n    def __bool__(self): return False\nassert f(T()) == (False, True)",
    ),
    "contextlib": (
        "from contextlib import contextmanager\nlog = []\n@contextmanager\ndef twice(x):\n    log.append(x)\n    try: yield x * 2\n    finally: log.append('end')\ndef get(): return log",
        "with twice(3) as v: assert v == 6\nassert get() == [3, 'end']\ntry:\n    with twice(1): raise OSError\nexcept OSError: pass\nelse: raise AssertionError",
    ),
    "namedtuple": (
        "from collections import namedtuple\nP=namedtuple('P','x y')\ndef f(): return P(1,2)",
        "p=f()\nassert p==(1,2) and p.x==1 and p[1]==2 and P(1,2)==p and isinstance(p,P) and isinstance(p,tuple)\na,b=p\nassert (a,b)==(1,2) and p._asdict()=={'x':1,'y':2} and p._replace(x=5)==(5,2) and P._fields==('x','y') and len(p)==2 and hash(p)==hash((1,2))",
    ),
    "typing.NamedTuple": (
        "from typing import NamedTuple\nclass P(NamedTuple):\n    x: int\n    y: int = 3\n    def total(self): return self.x+self.y\ndef f(p): return p.total()",
        "p=P(1)\nassert p==(1,3) and p.total()==4 and f(p)==4 and str(p)=='P(x=1, y=3)'",
    ),
    "IntEnum": (
        "import enum\nclass C(enum.IntEnum):\n    A=1\n    B=2\ndef f(x): return C(x)",
        "assert f(1)==1 and f(2)==C.B and C.A<C.B and f(1) is C.A and C['B'].value==2 and list(C)==[C.A,C.B] and isinstance(f(1),C) and isinstance(f(1),int) and len(C)==2 and C(2) is C.B",
    ),
    "str Enum": (
        "import enum\nclass C(str,enum.Enum):\n    A='a'\n    B='b'\n    def loud(self): return self.value.upper()\n    @classmethod\n    def of(cls,x): return cls(x.lower())\ndef f(x): return C(x)\ndef g(c): return c is C.A",
        "assert f('a')=='a' and f('b') is C.B and C.A.name=='A' and C.A.loud()=='A' and C.of('B') is C.B and g(C.A) is True and g(C.B) is False and {C.A:1}['a']==1\ntry: f('z')\nexcept ValueError: pass\nelse: raise AssertionError\ntry: C('z')\nexcept ValueError: pass\nelse: raise AssertionError",
    ),
    "Flag": (
        "import enum\nclass P(enum.Flag):\n    R=1\n    W=2\ndef both(): return P.R|P.W\ndef n(p): return p.value",
        "assert both()==P.R|P.W and P.R in both() and n(P.R|P.W)==3",
    ),
    "str subclass": (
        "class S(str):\n    def shout(self): return self.upper()+'!'\ndef f(): return S('ab')",
        "s=f()\nassert s=='ab' and isinstance(s,str) and isinstance(s,S) and s.shout()=='AB!' and len(s)==2 and s+'c'=='abc' and s.upper()=='AB' and S('x')=='x' and type(s) is S",
    ),
    "list subclass": (
        "class L(list):\n    def total(self): return sum(self)\ndef f(): return L([1,2])",
        "x=f()\nassert x==[1,2] and x.total()==3 and len(x)==2 and x[0]==1\nx.append(5)\nassert x==[1,2,5] and x.total()==8 and list(x)==[1,2,5]\nx[0]=10\nassert x.total()==17 and L([1])==[1] and sorted(x)==[2,5,10] and isinstance(x,list)\ns=L()\ns.append(1)\ns+=[2]\nassert s==[1,2] and s.pop()==2 and s==[1]",
    ),
    "dict subclass": (
        "class D(dict):\n    def __missing__(self,k): return 0\ndef f(): return D(a=1)",
        "d=f()\nassert d=={'a':1} and d['a']==1 and d.get('b') is None and dict(d)=={'a':1} and isinstance(d,dict)\nd['z']=3\nassert d=={'a':1,'z':3} and D()['q']==0",
    ),
    "deque": (
        "from collections import deque\ndef f(): return deque([1,2,3],maxlen=2)\ndef g(d): d.append(9)",
        "from collections import deque\nd=f()\nassert d==deque([2,3]) and d.maxlen==2\ng(d)\nassert list(d)==[3,9]",
    ),
    "aware": (
        "import datetime as dt\nfrom zoneinfo import ZoneInfo\ndef f(): return dt.datetime(2020,1,1,tzinfo=dt.timezone.utc)\ndef g(d): return d.astimezone(dt.timezone(dt.timedelta(hours=2)))\ndef z(d): return d.utcoffset(), d",
        "import datetime as dt\nassert f()==dt.datetime(2020,1,1,tzinfo=dt.timezone.utc) and f().tzinfo is dt.timezone.utc\nassert g(f()).hour==2 and g(f())==f() and g(f()).utcoffset()==dt.timedelta(hours=2)",
    ),
    "dataclass": (
        "from dataclasses import dataclass, field\n@dataclass(order=True)\nclass P:\n    x:int\n    y:int=2\n    tags:list=field(default_factory=list)\n    def move(self): self.x+=1\ndef f(): return P(1)\ndef g(p): return p.x+p.y",
        "import dataclasses\np=f()\nassert p==P(1,2) and p!=P(2) and p<P(5) and p.x==1 and isinstance(p,P) and g(p)==3\np.move()\nassert p==P(2) and dataclasses.asdict(p)=={'x':2,'y':2,'tags':[]} and [f.name for f in dataclasses.fields(P)]==['x','y','tags'] and dataclasses.is_dataclass(p) and dataclasses.astuple(p)==(2,2,[])\nassert str(P(1))=='P(x=1, y=2, tags=[])' and repr(p).startswith('P(') and p in [P(2)]\np.x=7\nassert p==P(7) and P(1)!=5",
    ),
    "frozen dataclass": (
        "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass P:\n    x:int\ndef f(): return {P(1):2}",
        "assert f()=={P(1):2} and P(1) in {P(1)} and len({P(1),P(1),P(2)})==2\ntry: P(1).x=3\nexcept AttributeError: pass\nelse: raise AssertionError",
    ),
    "operators": (
        "class V:\n    def __init__(s,x): s.x=x\n    def __add__(s,o): return V(s.x+o.x)\n    def __mul__(s,k): return V(s.x*k)\n    __rmul__=__mul__\n    def __neg__(s): return V(-s.x)\n    def __len__(s): return s.x\n    def __getitem__(s,i): return [1,2,3][i]\n    def __contains__(s,i): return i==s.x\n    def __iter__(s): return iter([1,2,3])\n    def __bool__(s): return s.x>0\n    def __call__(s): return 5\n    def __abs__(s): return abs(s.x)\n    def __int__(s): return s.x",
        "v=V(1)+V(2)\nassert v.x==3 and (v*2).x==6 and (2*v).x==6 and (-v).x==-3 and len(v)==3 and v[1]==2 and 3 in v and 4 not in v and list(v)==[1,2,3] and v() == 5 and bool(v) and not V(0) and abs(-v)==3 and int(v)==3\ntry: v+1\nexcept AttributeError: pass\na,b,c=v",
    ),
    "with": (
        "class M:\n    def __init__(s): s.log=[]\n    def __enter__(s): s.log.append('in'); return s\n    def __exit__(s,t,e,b): s.log.append(t.__name__ if t else None); return t is ValueError",
        "m=M()\nwith m as x:\n    assert x is m\nassert m.log==['in',None]\nwith m: raise ValueError('a')\nassert m.log[-1]=='ValueError'\ntry:\n    with m: raise KeyError(1)\nexcept KeyError: pass\nelse: raise AssertionError",
    ),
    "async gen": (
        "async def g(n):\n    for i in range(n): yield i\nclass A:\n    async def __aenter__(s): return 4\n    async def __aexit__(s,*a): pass",
        "import asyncio\nasync def main():\n    out=[i async for i in g(3)]\n    async with A() as a: out.append(a)\n    return out\nassert asyncio.run(main())==[0,1,2,4]",
    ),
    "str": (
        "class A:\n    def __str__(s): return 'hey'\n    def __repr__(s): return 'A()'\ndef f(): return A()",
        "assert str(f())=='hey' and repr(f())=='A()' and f'{f()}'=='hey' and '%s'%f()=='hey'",
    ),
    "isinstance": (
        "class A: 'doc A'\nclass B(A): pass\ndef f(): return B()",
        "assert isinstance(f(),A) and isinstance(f(),B) and not isinstance(A(),B) and issubclass(B,A) and type(f()) is B and type(f()).__name__=='B' and A.__doc__=='doc A' and A().__doc__=='doc A' and B.__name__=='B' and not isinstance(5,A)",
    ),
    "doc": (
        "def f(x: int, y: str='a', *a, k=None, **kw) -> bool:\n    'the doc'",
        "import inspect\nassert f.__doc__=='the doc' and f.__name__=='f'\ns=inspect.signature(f)\nassert str(s)==\"(x: int, y: str = 'a', *a, k=None, **kw) -> bool\" and list(s.parameters)==['x','y','a','k','kw'] and s.parameters['y'].default=='a'\nf(1)",
    ),
    "exc attributes": (
        "class E(Exception):\n    def __init__(s,m,code): super().__init__(m); s.code=code; s.data={'a':[1]}\n    @property\n    def twice(s): return s.code*2\n    def meth(s): return 'm'\n    def __str__(s): return f'E:{s.code}'\ndef f():\n    try: 1/0\n    except ZeroDivisionError as z: raise E('x',3) from z",
        "try: f()\nexcept E as e:\n    assert e.code==3 and e.data=={'a':[1]} and e.twice==6 and e.meth()=='m' and str(e)=='E:3' and isinstance(e.__cause__,ZeroDivisionError) and e.args==('x',)\nelse: raise AssertionError",
    ),
    "causes in a loop": (
        "class E(Exception): pass\ndef f():\n    a=E('a'); b=E('b'); a.__cause__=b; b.__cause__=a; raise a",
        "try: f()\nexcept E as e: assert e.args==('a',)\nelse: raise AssertionError",
    ),
    "exc attributes with special names": (
        "class E(Exception): pass\ndef f():\n    a=E('a'); a.__dict__['__class__']=int; a.__dict__['_securebench_own_number']=0; raise a",
        "try: f()\nexcept E as e: assert type(e) is E and e.args==('a',)\nelse: raise AssertionError",
    ),
    "group": (
        "def f(): raise ExceptionGroup('g',[ValueError(1),TypeError('t')])",
        "try: f()\nexcept* ValueError as g: assert len(g.exceptions)==1 and g.exceptions[0].args==(1,)\nexcept* TypeError: pass",
    ),
    "stdlib containers": (
        "from collections import ChainMap\nfrom types import MappingProxyType\nfrom array import array\nfrom pathlib import PurePath, PurePosixPath, Path\nimport uuid\ndef f(): return [ChainMap({'a':1},{'b':2}),MappingProxyType({'a':1}),array('i',[1,2]),memoryview(b'ab'),PurePosixPath('a/b'),Path('/x'),uuid.UUID(int=5),slice(1,2),...]",
        "from collections import ChainMap\nfrom types import MappingProxyType\nfrom array import array\nfrom pathlib import *\nimport uuid\nassert f()==[ChainMap({'a':1},{'b':2}),MappingProxyType({'a':1}),array('i',[1,2]),memoryview(b'ab'),PurePosixPath('a/b'),Path('/x'),uuid.UUID(int=5),slice(1,2),...]",
    ),
    "deep": (
        "def f(n):\n    x=[]\n    for _ in range(n): x=[x]\n    return x\ndef d(x):\n    n=0\n    while x: x=x[0]; n+=1\n    return n",
        "x=f(400)\nn=0\nwhile x: x=x[0]; n+=1\nassert n==400\ny=[]\nfor _ in range(400): y=[y]\nassert d(y)==400 and f(300)==f(300)",
    ),
    "own objects": (
        "def total(items): return sum(i.price*i.n for i in items)\ndef bump(i): i.n+=1; return i\ndef call(i): return i.total()\ndef make(C): return C(2,3)\ndef same(a,b): return a is b",
        "class Item:\n    def __init__(self,p,n): self.price=p; self.n=n\n    def total(self): return self.price*self.n\na=Item(2,3)\nassert total([a,Item(1,1)])==7 and bump(a) is a and a.n==4 and call(a)==8\nm=make(Item)\nassert isinstance(m,Item) and m.price==2\no=object()\nassert same(o,o) and not same(o,object())",
    ),
    "vars": (
        "class A:\n    def __init__(s): s.x=1\n    def __eq__(s,o): return s.x==o.x\n",
        "a=A()\nassert vars(a)=={'x':1} and a.__dict__=={'x':1} and a==a and getattr(a,'zz',3)==3 and hasattr(a,'x')",
    ),
    "frozenset/int/float/tuple/set sub": (
        "class I(int): pass\nclass F(float): pass\nclass T(tuple): pass\nclass S(set):\n    def addall(s,*a): s.update(a)\nclass B(bytes): pass\ndef f(): return [I(3),F(1.5),T((1,2)),S({1}),B(b'a')]",
        "i,fl,t,s,b=f()\nassert i==3 and i+1==4 and fl==1.5 and t==(1,2) and s=={1} and b==b'a' and isinstance(i,I)\ns.addall(2,3)\nassert s=={1,2,3} and 2 in s\ns.add(9)\nassert s=={1,2,3,9} and len(s)==4",
    ),
    "mixin": (
        "class M:\n    def hi(s): return 'hi'\nclass S(M,str): pass\nclass O(dict):\n    __getattr__=dict.__getitem__\ndef f(): return S('q')\ndef o(): return O(a=1)",
        "assert f()=='q' and f().hi()=='hi' and isinstance(f(),M) and o().a==1",
    ),
    "abc generic": (
        "from abc import ABC, abstractmethod\nfrom typing import Generic, TypeVar\nT=TypeVar('T')\nclass Shape(ABC):\n    @abstractmethod\n    def area(s): ...\nclass Sq(Shape):\n    def __init__(s,a): s.a=a\n    def area(s): return s.a**2\nclass Box(Generic[T]):\n    def __init__(s,v:T): s.v=v",
        "assert Sq(3).area()==9 and isinstance(Sq(1),Shape) and Box(3).v==3 and Box[int](4).v==4\ntry: Shape()\nexcept TypeError: pass\nelse: raise AssertionError",
    ),
    "exceptions as values": (
        "def f(): return [ValueError('a'), KeyError]\nclass E(Exception): pass\ndef g(): return E('x')",
        "a,b=f()\nassert isinstance(a,ValueError) and a.args==('a',) and b is KeyError and isinstance(g(),E)",
    ),
    "iter class": (
        "class R:\n    def __init__(s,n): s.n=n\n    def __iter__(s): return iter(range(s.n))\n    def __len__(s): return s.n\n    def __getitem__(s,i): return i",
        "r=R(3)\nassert list(r)==[0,1,2] and len(r)==3 and 2 in r and r[1]==1 and sum(r)==3 and bool(r) and not R(0)\nfor x in r: pass",
    ),
    "property obj": (
        "class A:\n    def __init__(s): s._v=1\n    @property\n    def v(s): return s._v\n    @v.setter\n    def v(s,x):\n        if x<0: raise ValueError\n        s._v=x\n    @staticmethod\n    def st(): return 4\n    count=0",
        "a=A()\na.v=5\nassert a.v==5 and A.st()==4 and A.count==0\ntry: a.v=-1\nexcept ValueError: pass\nelse: raise AssertionError\nA.count=3\nassert a.count==3",
    ),
    "singleton": (
        "class S:\n    _i=None\n    def __new__(c):\n        if not c._i: c._i=super().__new__(c)\n        return c._i",
        "assert S() is S()",
    ),
    "hash eq class": (
        "class K:\n    def __init__(s,v): s.v=v\n    def __hash__(s): return hash(s.v)\ndef f(): return K(1)",
        "a=f()\nd={a:1}\nassert d[a]==1 and a in d",
    ),
}


@pytest.mark.parametrize("case", HONEST, ids=str)
def test_honest_use_of_a_candidates_classes_passes(local: ScriptedDriver, case: str) -> None:
    """Honest uses of a candidate's classes pass, as they do in plain Python."""
    candidate, tests = HONEST[case]
    result = judge(local, candidate, tests)
    assert result.passed, (result.message, result.stderr)


LIES = {
    "a field that follows the expected value": (
        "from dataclasses import dataclass\nLAST=[None]\n@dataclass\nclass P:\n    x:int\n    def move(self): LAST[0]=0\n    def __getattribute__(self,n):\n        return LAST[0] if n=='x' and LAST[0] else object.__getattribute__(self,n)\n    def __setattr__(self,n,v):\n        LAST[0]=v\n        object.__setattr__(self,n,v)",
        "p=P(1)\np.move()\nassert p==P(2)",
    ),
    "a list that follows the expected value": (
        "ALL=[]\nclass L(list):\n    def __init__(s,xs=()):\n        list.__init__(s,xs)\n        for a in ALL: a[:]=xs\n        ALL.append(s)\ndef f(): return L()",
        "assert f()==L([1,2])",
    ),
    "a dict that follows the expected value": (
        "ALL=[]\nclass D(dict):\n    def __init__(s,xs=()):\n        dict.__init__(s,xs)\n        for a in ALL: dict.update(a,xs)\n        ALL.append(s)\ndef f(): return D()",
        "x=f()\nassert x==D({1:2})",
    ),
    "a list that the expected object brings along": (
        "ALL=[]\nclass L(list):\n    def __init__(s,xs=()):\n        list.__init__(s,[*xs, *ALL])\n        for a in ALL: a[:]=xs\n        ALL.append(s)\ndef f(): return L()",
        "x=f()\nassert x==L([1,2])[:2]==x",
    ),
    "the name of a member": (
        "import enum\nclass C(enum.Enum):\n    A=1\n    B=2\n    @property\n    def name(self): return 'B'\ndef f(): return C.A",
        "assert f().name=='B'",
    ),
    "liar dataclass": (
        "from dataclasses import dataclass\n@dataclass\nclass P:\n    x:int\n    y:int\n    def __post_init__(s): s.x=s.y=0\ndef f(): return P(0,0)",
        "assert f()==P(3,4)",
    ),
    "liar dataclass getattribute": (
        "from dataclasses import dataclass\n@dataclass\nclass P:\n    x:int\n    y:int\n    def __getattribute__(s,n): return 0 if n in 'xy' else object.__getattribute__(s,n)\ndef f(): return P(9,9)",
        "assert f()==P(3,4)",
    ),
    "dataclass fields equal": (
        "from dataclasses import dataclass\n\nclass Equal:\n    def __eq__(self, other): return True\n    def __ne__(self, other): return False\n    def __hash__(self): return 1\n    def __lt__(self,o): return True\n    __le__=__gt__=__ge__=__lt__\n    def __bool__(self): return True\n    def __len__(self): return 0\n    def __iter__(self): return iter(())\n    def __contains__(self, x): return True\n    def __getitem__(self, i): return self\n    def __sub__(self, other): return 0\n    __rsub__ = __sub__\n@dataclass\nclass P:\n    x:int\ndef f(): return P(Equal())",
        "assert f()==P(3)",
    ),
    "dataclass custom eq": (
        "from dataclasses import dataclass\n@dataclass\nclass P:\n    x:int\n    def __eq__(s,o): return True\ndef f(): return P(1)",
        "assert f()==P(3)",
    ),
    "adaptive dataclass": (
        "from dataclasses import dataclass\nLAST=[0]\n@dataclass\nclass P:\n    x:int\n    def __init__(s,x): LAST[0]=x\n    x=property(lambda s: LAST[0], lambda s,v: None)\ndef f(): return P(0)",
        "assert f()==P(3)",
    ),
    "eq class": (
        "class V:\n    def __init__(s,x): pass\n    def __eq__(s,o): return True\ndef f(): return V(1)",
        "assert f()==V(3)",
    ),
    "ne class": (
        "class V:\n    def __init__(s,x): pass\n    def __ne__(s,o): return False\n    def __eq__(s,o): return True\ndef f(): return V(1)",
        "assert not f()!=V(3)",
    ),
    "eq vs plain": (
        "\nclass Equal:\n    def __eq__(self, other): return True\n    def __ne__(self, other): return False\n    def __hash__(self): return 1\n    def __lt__(self,o): return True\n    __le__=__gt__=__ge__=__lt__\n    def __bool__(self): return True\n    def __len__(self): return 0\n    def __iter__(self): return iter(())\n    def __contains__(self, x): return True\n    def __getitem__(self, i): return self\n    def __sub__(self, other): return 0\n    __rsub__ = __sub__\ndef f(): return Equal()",
        "assert f()==3",
    ),
    "eq in list": (
        "\nclass Equal:\n    def __eq__(self, other): return True\n    def __ne__(self, other): return False\n    def __hash__(self): return 1\n    def __lt__(self,o): return True\n    __le__=__gt__=__ge__=__lt__\n    def __bool__(self): return True\n    def __len__(self): return 0\n    def __iter__(self): return iter(())\n    def __contains__(self, x): return True\n    def __getitem__(self, i): return self\n    def __sub__(self, other): return 0\n    __rsub__ = __sub__\ndef f(): return [Equal()]",
        "assert f()==[3]",
    ),
    "in": (
        "\nclass Equal:\n    def __eq__(self, other): return True\n    def __ne__(self, other): return False\n    def __hash__(self): return 1\n    def __lt__(self,o): return True\n    __le__=__gt__=__ge__=__lt__\n    def __bool__(self): return True\n    def __len__(self): return 0\n    def __iter__(self): return iter(())\n    def __contains__(self, x): return True\n    def __getitem__(self, i): return self\n    def __sub__(self, other): return 0\n    __rsub__ = __sub__\ndef f(): return Equal()",
        "assert f() in [1,2]",
    ),
    "named eq": (
        "\nclass Equal:\n    def __eq__(self, other): return True\n    def __ne__(self, other): return False\n    def __hash__(self): return 1\n    def __lt__(self,o): return True\n    __le__=__gt__=__ge__=__lt__\n    def __bool__(self): return True\n    def __len__(self): return 0\n    def __iter__(self): return iter(())\n    def __contains__(self, x): return True\n    def __getitem__(self, i): return self\n    def __sub__(self, other): return 0\n    __rsub__ = __sub__\ndef f(): return Equal()",
        "Equal\nassert f()==3",
    ),
    "named lt": (
        "\nclass Equal:\n    def __eq__(self, other): return True\n    def __ne__(self, other): return False\n    def __hash__(self): return 1\n    def __lt__(self,o): return True\n    __le__=__gt__=__ge__=__lt__\n    def __bool__(self): return True\n    def __len__(self): return 0\n    def __iter__(self): return iter(())\n    def __contains__(self, x): return True\n    def __getitem__(self, i): return self\n    def __sub__(self, other): return 0\n    __rsub__ = __sub__\ndef f(): return Equal()",
        "Equal\nassert f()<3",
    ),
    "unnamed len": (
        "\nclass Equal:\n    def __eq__(self, other): return True\n    def __ne__(self, other): return False\n    def __hash__(self): return 1\n    def __lt__(self,o): return True\n    __le__=__gt__=__ge__=__lt__\n    def __bool__(self): return True\n    def __len__(self): return 0\n    def __iter__(self): return iter(())\n    def __contains__(self, x): return True\n    def __getitem__(self, i): return self\n    def __sub__(self, other): return 0\n    __rsub__ = __sub__\ndef f(): return Equal()",
        "assert len(f())==0",
    ),
    "unnamed bool": (
        "class X:\n    def __bool__(s): return True\ndef f(): return X()",
        "assert f()",
    ),
    "unnamed iter": (
        "\nclass Equal:\n    def __eq__(self, other): return True\n    def __ne__(self, other): return False\n    def __hash__(self): return 1\n    def __lt__(self,o): return True\n    __le__=__gt__=__ge__=__lt__\n    def __bool__(self): return True\n    def __len__(self): return 0\n    def __iter__(self): return iter(())\n    def __contains__(self, x): return True\n    def __getitem__(self, i): return self\n    def __sub__(self, other): return 0\n    __rsub__ = __sub__\ndef f(): return Equal()",
        "assert all(x>0 for x in f())",
    ),
    "class named like function": (
        "\nclass solve:\n    def __eq__(self, other): return True\n    def __ne__(self, other): return False\n    def __hash__(self): return 1\n    def __lt__(self,o): return True\n    __le__=__gt__=__ge__=__lt__\n    def __bool__(self): return True\n    def __len__(self): return 0\n    def __iter__(self): return iter(())\n    def __contains__(self, x): return True\n    def __getitem__(self, i): return self\n    def __sub__(self, other): return 0\n    __rsub__ = __sub__\n    def __init__(s,x): pass\n",
        "assert len(solve([1]))==0",
    ),
    "str sub eq": (
        "class S(str):\n    def __eq__(s,o): return True\n    __hash__=str.__hash__\ndef f(): return S('a')",
        "assert f()=='b'",
    ),
    "str sub eq named": (
        "class S(str):\n    def __eq__(s,o): return True\n    def __new__(c,*a): return str.__new__(c,'')\n    __hash__=str.__hash__\ndef f(): return S('a')",
        "assert f()==S('b')",
    ),
    "list sub eq named": (
        "class L(list):\n    def __eq__(s,o): return True\n    def __init__(s,*a): pass\ndef f(): return L()",
        "assert f()==L([1,2])",
    ),
    "list sub len": (
        "class L(list):\n    def __len__(s): return 3\n    def __iter__(s): return iter([1,2,3])\ndef f(): return L()",
        "assert list(f())==[1,2,3]",
    ),
    "nt liar": (
        "from collections import namedtuple\nclass P(namedtuple('P','x y')):\n    def __new__(c,*a): return super().__new__(c,0,0)\n    x=property(lambda s: 3)\ndef f(): return P(1,1)",
        "assert f()==P(3,4)",
    ),
    "nt property": (
        "from collections import namedtuple\nclass P(namedtuple('P','x y')):\n    x=property(lambda s: 3)\ndef f(): return P(1,1)",
        "assert f().x==3",
    ),
    "enum lying eq": (
        "import enum\nclass C(enum.Enum):\n    A=1\n    B=2\n    def __eq__(s,o): return True\n    __hash__=object.__hash__\ndef f(): return C.A",
        "assert f()==C.B",
    ),
    "enum value eq": (
        "import enum\n\nclass Equal:\n    def __eq__(self, other): return True\n    def __ne__(self, other): return False\n    def __hash__(self): return 1\n    def __lt__(self,o): return True\n    __le__=__gt__=__ge__=__lt__\n    def __bool__(self): return True\n    def __len__(self): return 0\n    def __iter__(self): return iter(())\n    def __contains__(self, x): return True\n    def __getitem__(self, i): return self\n    def __sub__(self, other): return 0\n    __rsub__ = __sub__\nclass C(enum.Enum):\n    A=Equal()\n    B=2\ndef f(): return C.A",
        "assert f().value==3",
    ),
    "intenum eq": (
        "import enum\nclass C(enum.IntEnum):\n    A=1\n    def __eq__(s,o): return True\n    __hash__=None\ndef f(): return C.A",
        "assert f()==5",
    ),
    "evil tz": (
        "import datetime as d\nclass T(d.tzinfo):\n    def utcoffset(s,x): return d.timedelta(0)\n    def tzname(s,x): return 'x'\n    def dst(s,x): return None\n    def __eq__(s,o): return True\ndef f(): return d.datetime(2020,1,1,tzinfo=T())",
        "import datetime as d\nassert f().tzinfo==d.timezone(d.timedelta(hours=1))",
    ),
    "with swallow": (
        "class T:\n    def __enter__(s): return s\n    def __exit__(s,*a): return True\ndef f(): return 1",
        "with T():\n    assert f()==2",
    ),
    "with swallow unnamed": (
        "class T:\n    def __enter__(s): return s\n    def __exit__(s,*a): return True\ndef t(): return T()\ndef f(): return 1",
        "with t():\n    assert f()==2",
    ),
    "except nested attr": (
        "class B:\n    Error=Exception\ndef f(): return 1",
        "try:\n    assert f()==2\nexcept B.Error: pass",
    ),
    "instancecheck": (
        "class M(type):\n    def __instancecheck__(c,o): return True\nclass A(metaclass=M): pass\ndef f(): return 5",
        "assert isinstance(f(),A)",
    ),
    "class lie": (
        "class A: pass\nclass B:\n    __class__=A\ndef f(): return B()",
        "assert isinstance(f(),A)",
    ),
    "sub getattr dunder name": (
        "class L(list): pass\nsetattr(L,'__eq__',lambda s,o: True)\nsetattr(L,'__ne__',lambda s,o: False)\ndef f(): return L()",
        "assert f()==[1]",
    ),
    "hash collision dict": (
        "class K(str):\n    def __hash__(s): return hash('zz')\n    def __eq__(s,o): return True\ndef f(): return {K('a'):1}",
        "assert f()['zz']==1",
    ),
    "equal key": (
        "from dataclasses import dataclass\n@dataclass\nclass P:\n    x:int\n    def __eq__(s,o): return True\n    def __hash__(s): return 1\ndef f(): return P(1)",
        "assert f() in {P(2):1}",
    ),
    "iter lying dict": (
        "class D(dict):\n    def __iter__(s): return iter(['a'])\ndef f(): return D()",
        "assert list(f())==['a']",
    ),
    "dict(lying)": (
        "class D(dict):\n    def __getitem__(s,k): return 1\n    def keys(s): return ['a']\n    def __iter__(s): return iter(['a'])\ndef f(): return D()",
        "assert dict(f())=={'a':1}",
    ),
    "sorted(lying list)": (
        "class L(list):\n    def __iter__(s): return iter([1,2])\ndef f(): return L([9])",
        "assert sorted(f())==[1,2]",
    ),
    "float sub": (
        "class F(float):\n    def __sub__(s,o): return 0.0\n    def __abs__(s): return 0.0\n    def __lt__(s,o): return True\ndef f(): return F(9)",
        "assert abs(f()-1)<0.1",
    ),
    "index": (
        "class I(int):\n    def __index__(s): return 0\n    def __add__(s,o): return 5\ndef f(): return I(7)",
        "assert f()+1==5",
    ),
    "path": (
        "from pathlib import PurePosixPath\nclass P(PurePosixPath):\n    def __fspath__(s): return 'b'\n    def __eq__(s,o): return True\n    __hash__=None\ndef f(): return P('a')",
        "from pathlib import PurePosixPath\nassert f()==PurePosixPath('b')",
    ),
    "made dataclass with its own eq": (
        "from dataclasses import make_dataclass\nP=make_dataclass('P',['eq'],namespace={'__eq__':lambda s,o: True})\ndef f(): return P(1)",
        "assert f()==P(2)",
    ),
    "setattr changes expected": (
        "from dataclasses import dataclass\nK=[]\n@dataclass\nclass P:\n    x:int\n    def __post_init__(s): K.append(s)\ndef f():\n    for k in K: k.x=0\n    return P(0)",
        "want=P(3)\nassert f()==want",
    ),
    "dataclass compares nothing": (
        (
            "from dataclasses import dataclass, field\n@dataclass\nclass P:\n    x: int = field(compare=False)\n"
            "    y: int = field(compare=False)\ndef f(): return P(0, 0)"
        ),
        "assert f() == P(3, 4)",
    ),
    "ordered dataclass compares nothing": (
        (
            "from dataclasses import dataclass, field\n@dataclass(order=True)\nclass P:\n"
            "    x: int = field(compare=False)\ndef f(): return P(0)"
        ),
        "assert P(3) <= f() <= P(3)",
    ),
    "ordered dataclass leaves one field out": (
        (
            "from dataclasses import dataclass, field\n@dataclass(order=True)\nclass P:\n    x: int\n"
            "    y: int = field(compare=False)\ndef f(): return P(3, 0)"
        ),
        "assert not P(3, 4) < f() and not P(3, 4) > f()",
    ),
    "ordered dataclass compares what its objects were numbered with": (
        (
            "from dataclasses import dataclass, field\nfrom itertools import count\nN = count()\n"
            "@dataclass(order=True)\nclass P:\n    x: int = field(compare=False)\n"
            "    n: int = field(default_factory=N.__next__)\ndef f(): return P(0)"
        ),
        "assert P(3) <= f() <= P(3)",
    ),
    "dataclass leaves one field out": (
        (
            "from dataclasses import dataclass, field\n@dataclass\nclass P:\n    x: int\n    y: int = field(compare=False)\n"
            "def f(): return P(3, 0)"
        ),
        "assert f() == P(3, 4)",
    ),
    "dataclass leaves out a field that is set later": (
        (
            "from dataclasses import dataclass, field\n@dataclass\nclass P:\n"
            "    x: int = field(default=0, compare=False)\ndef f(): return P(0)"
        ),
        "want = P()\nwant.x = 3\nassert f() == want",
    ),
    "dataclass in a dataclass compares nothing": (
        (
            "from dataclasses import dataclass, field\n@dataclass\nclass P:\n    x: int = field(compare=False)\n"
            "@dataclass\nclass L:\n    a: P\ndef f(): return L(P(0))"
        ),
        "assert f() == L(P(3))",
    ),
    "dataclass that holds nothing": (
        (
            "from dataclasses import dataclass\n@dataclass(init=False)\nclass P:\n    def __init__(self, x, y): pass\n"
            "def f(): return P(0, 0)"
        ),
        "assert f() == P(3, 4)",
    ),
    "dataclass that holds one of two": (
        (
            "from dataclasses import dataclass, field, InitVar\n@dataclass\nclass P:\n    x: InitVar[int]\n"
            "    y: InitVar[int]\n    z: int = field(init=False)\n    def __post_init__(self, x, y): self.z = x\n"
            "def f(): return P(3, 0)"
        ),
        "assert f() == P(3, 4)",
    ),
    "one dataclass object for all": (
        (
            "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\n    y: int\n    def __new__(cls, *a):\n"
            "        if not hasattr(cls, 'one'): cls.one = object.__new__(cls)\n        return cls.one\ndef f(): return P(0, 0)"
        ),
        "assert f() == P(3, 4)",
    ),
    "lent private": (
        "def f(o):\n    return o.__class__.secret",
        "class T:\n    secret=1\nassert f(T())==1",
    ),
    "lent underscore": (
        "def f(o):\n    return o._hidden",
        "class T:\n    def __init__(s): s._hidden=1\nassert f(T())==1",
    ),
    "lent method replaced": (
        "def f(o):\n    o.check=lambda *a: True",
        "class T:\n    def check(s,v): return v==2\nt=T()\ntry: f(t)\nexcept AttributeError: pass\nassert t.check(3)",
    ),
    "nan complex": (
        "from dataclasses import dataclass\ndef f(): return [float('nan')]",
        "if f()[0]>3: raise ValueError",
    ),
}


@pytest.mark.parametrize("case", LIES, ids=str)
def test_a_class_that_lies_fails(local: ScriptedDriver, case: str) -> None:
    """B04: A candidate's class cannot fake a comparison, pass as another class, or hide a failed assert.

    In plain Python, each of these candidates would pass.
    """
    candidate, tests = LIES[case]
    exec(compile(f"{candidate}\n{tests}", case, "exec", dont_inherit=True), {})
    result = judge(local, candidate, tests)
    assert result.reason in {FailureReason.TESTS_FAILED, FailureReason.PROTOCOL_VIOLATION}, result.message


UNSUPPORTED = {
    "source": ("def f(): pass", "import inspect\nassert 'def' in inspect.getsource(f)"),
    "operator": ("class V:\n    def __len__(self): return 1\ndef f(): return V()", "assert len(f()) == 1"),
    "equality": ("class V:\n    def __eq__(self, o): return True", "assert V() == V()"),
    "fields": (
        (
            "from dataclasses import dataclass, field\n@dataclass\nclass P:\n    x: int\n"
            "    y: int = field(init=False, compare=False)\ndef f(): return P(1)"
        ),
        "a = f()\nb = f()\nassert a == b",
    ),
    "subclass": ("class V: pass", "class W(V): pass\nassert W()"),
    "own_operator": ("def f(x): return len(x)", "class T:\n    def __len__(self): return 2\nassert f(T()) == 2"),
    "argument": ("def f(x): return x.read()", "import threading\nassert f(threading.Lock()) == ''"),
    "printed": (
        "def f(): print('a')",
        "import io, contextlib as c\nwith c.redirect_stdout(io.StringIO()) as o: f()\nassert o.getvalue() == 'a\\n'",
    ),
    "copy": (
        (
            "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\n    def __post_init__(self): self.x = 0\n"
            "def f(): return P(0)"
        ),
        "import copy\nassert f() == copy.copy(P(3))",
    ),
    "process": ("import random\ndef f(): return random.random()", "import random\nrandom.seed(1)\nassert f() == 0.134"),
    "files": (
        "def f(path): return open('/none').read()",
        "import tempfile\nwith tempfile.NamedTemporaryFile() as file: assert f(file.name) == ''",
    ),
    "attribute": (
        "class N:\n    def __init__(self): self.children = []\ndef f(n): return len(n.children)",
        "n = N()\nn.children.append(N())\nassert f(n) == 1",
    ),
    "patch": (
        "def f(): return input()",
        "from unittest import mock\nwith mock.patch('builtins.input', lambda: 'x'): assert f() == 'x'",
    ),
}


@pytest.mark.parametrize("feature", UNSUPPORTED, ids=str)
def test_what_is_not_carried_is_named(local: ScriptedDriver, feature: str) -> None:
    """If a feature does not work across sandboxes, the failure names it and suggests shared isolation."""
    candidate, tests = UNSUPPORTED[feature]
    result = judge(local, candidate, tests)
    assert (result.passed, result.metadata["note"]) == (False, feature)
    assert explain(feature) in result.message
    assert "tests.isolation: shared" in result.message


def _class(name: str = "P", family: str = "object", fields: str = "", names: str = "", *bases: Any) -> list[Any]:
    return [1, "class", [7, name, family, "object", "", fields, "", names, *bases]]


FORGED = {
    "an operator as a field": [_class("P", "tuple", "__eq__")],
    "an operator as a method": [_class("P", "list", "", "__eq__")],
    "an unknown family": [_class("P", "type")],
    "a family that is no plain subclass": [_class("P", "range"), [2, "mine", [8, ["ref", 1]]]],
    "a base that is no class": [_class("P", "object", "", "", 5)],
    "a number of the tests": [[1, "class", ["x", "P", "object", "object", "", "", "", ""]]],
    "an object of a plain type": [[2, "mine", [8, ["type", "", "list"]]]],
    "an object of an exception": [_class("P", "error"), [2, "mine", [8, ["ref", 1]]]],
    "an exit": [
        [2, "error", [["type", "", "SystemExit"], ["ref", 3], ["ref", 4], None, False]],
        [3, "tuple", []],
        [4, "dict", []],
    ],
    "attributes that are none": [
        [3, "tuple", []],
        [4, "dict", ["__class__", 1]],
        [2, "error", [["type", "", "ValueError"], ["ref", 3], ["ref", 4], None, False, 1]],
    ],
    "a cause that is none": [
        [3, "tuple", []],
        [4, "dict", []],
        [2, "error", [["type", "", "ValueError"], ["ref", 3], ["ref", 4], 5, False, 1]],
    ],
    "data of another type": [_class("P", "str"), [2, "frozen", [8, ["ref", 1], 5]]],
    "too few fields": [_class("P", "tuple", "x,y"), [3, "tuple", [1]], [2, "frozen", [8, ["ref", 1], ["ref", 3]]]],
    "a member called mro": [[1, "enum", [7, "C", "Enum", "", False, "mro", 1]]],
    "a private member": [[1, "enum", [7, "C", "Enum", "", False, "_missing_", 1]]],
    "an enumeration of another base": [[1, "enum", [7, "C", "EnumMeta", "", False, "A", 1]]],
    "a member of no enumeration": [[1, "member", [["type", "", "int"], None, 5]]],
    "one number twice": [_class(), [2, "class", [7, "Q", "object", "object", "", "", "", ""]]],
    "a container for an object": [[1, "mine", [7, ["ref", 1]]]],
}


@pytest.mark.parametrize("case", FORGED, ids=str)
def test_a_forged_description_is_refused(case: str) -> None:
    """A15, A20: An invalid description of a class, object or error from the candidate's side is refused."""
    peer = JudgingPeer(None, "")  # type: ignore[arg-type]  # nothing is sent
    with pytest.raises(MalformedError):
        Exchange(peer).unpack({"value": None, "heap": FORGED[case]})


def test_a_described_class_takes_its_operators_from_us() -> None:
    """Equality, hash and iteration of the stand-in for a ``str`` subclass are those of ``str``."""
    peer = JudgingPeer(None, "")  # type: ignore[arg-type]  # nothing is sent
    heap = [_class("P", "str", "", "upper"), [2, "frozen", [8, ["ref", 1], "a"]]]
    stand_in = Exchange(peer).unpack({"value": ["ref", 2], "heap": heap})
    assert stand_in == "a"
    assert hash(stand_in) == hash("a")
    assert stand_in != "b"
    assert list(stand_in) == ["a"]
    assert type(stand_in).__mro__[1:] == (str, object)
