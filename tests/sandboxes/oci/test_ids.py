"""Id maps: the host ids of the users of a sandbox."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securebench.images.store.ids import COUNT, SHIFT
from securebench.sandboxes.oci.config import HostIds, IdMap, identity_map
from securebench.sandboxes.oci.config import outside as outside_of

ROOT = HostIds.of_root()
ALONE = HostIds.of_namespace("         0       1000          1\n", "         0       1000          1\n")
GIVEN = HostIds.of_namespace("0 1000 1\n1 100000 65536\n", "0 1000 1\n1 200000 65536\n")


def entry(inside: int, outside: int, size: int) -> dict[str, int]:
    """Return one range of an id map."""
    return {"containerID": inside, "hostID": outside, "size": size}


def outside(id_map: IdMap, inside: int) -> int | None:
    """Return the host id to which the kernel would map ``inside``, or ``None`` if it is not mapped."""
    for found in id_map:
        if found["containerID"] <= inside < found["containerID"] + found["size"]:
            return found["hostID"] + inside - found["containerID"]
    return None


def test_nobody_is_nobody_for_root() -> None:
    """As root, all ids are shifted except that of the sandbox's own user, which is the same on the host."""
    expected = [entry(0, SHIFT, 65534), entry(65534, 65534, 1), entry(65535, SHIFT + 65535, 1)]
    assert identity_map((65534, 65534), ROOT) == (expected, expected)


def test_root_is_never_root() -> None:
    """Root in a sandbox is not root on the host. It has the shifted id 0, to which root's files in an image belong."""
    users, groups = identity_map((0, 0), ROOT)
    assert outside(users, 0) == outside(groups, 0) == outside_of(users, 0) == SHIFT
    for found in (outside, outside_of):
        assert [found(users, number) for number in (1, 65535)] == [SHIFT + 1, SHIFT + 65535]


def test_an_ordinary_user_alone_is_the_only_user() -> None:
    """Without subordinate ids, a sandbox's only user is the user who runs SecureBench, with the ids of the spec."""
    assert identity_map((1000, 1001), ALONE) == ([entry(1000, 0, 1)], [entry(1001, 0, 1)])


def test_subordinate_ids_are_everybody_else() -> None:
    """With subordinate ids, the sandbox's own user is the one who runs SecureBench. Others map to subordinate ids."""
    users, groups = identity_map((65534, 0), GIVEN)
    assert users == [entry(0, 1, 65534), entry(65534, 0, 1), entry(65535, 65535, 1)]
    assert groups == [entry(0, 0, 1), entry(1, 1, 65535)]


def test_subordinate_ids_end_at_a_gap() -> None:
    """Subordinate ids are counted only up to the first gap, whatever the order of their ranges."""
    ids = HostIds.of_namespace("0 1000 1\n1 100000 10\n20 300000 5\n11 200000 3\n", "0 1000 1\n")
    assert (ids.uids, ids.gids) == (13, 0)


@pytest.mark.parametrize("available", [ROOT, ALONE, GIVEN], ids=["root", "alone", "given"])
@given(user=st.integers(0, 2**31) | st.integers(SHIFT, SHIFT + COUNT), probe=st.integers(0, 2**31))
def test_every_map_can_be_written(available: HostIds, user: int, probe: int) -> None:
    """No range is empty or overlaps another, in the sandbox or on the host.

    If root runs SecureBench, the sandbox's own user has the same id on the host, unless this id is 0 or a shifted id.
    0 is shifted, and a shifted id is mapped to the id after all shifted ids. All other mapped ids are shifted. If an
    ordinary user runs SecureBench, the sandbox's own user is mapped to that user, who has the id 0 in the supervisor's
    namespace.
    """
    users, _ = identity_map((user, 0), available)
    assert all(found["size"] > 0 for found in users)
    assert len(users) <= 3
    for side in ("containerID", "hostID"):
        ranges = sorted((found[side], found[side] + found["size"]) for found in users)
        assert all(first[1] <= second[0] for first, second in itertools.pairwise(ranges))
    own = outside(users, user)
    if available is ROOT:
        assert own == (SHIFT + COUNT if SHIFT <= user < SHIFT + COUNT else user or SHIFT)
        assert probe == user or outside(users, probe) in {None, SHIFT + probe}
    else:
        assert own == 0


@given(user=st.integers(0, COUNT - 1))
def test_no_user_of_an_image_is_missing(user: int) -> None:
    """As root, and with a full range of subordinate ids, every id that an image may use is mapped."""
    for available in (ROOT, GIVEN):
        users, _ = identity_map((user, 0), available)
        assert sum(found["size"] for found in users) == COUNT
