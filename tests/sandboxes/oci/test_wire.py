"""Requests between a driver and its supervisor."""

from __future__ import annotations

import os

from securebench.sandboxes.oci.wire import read_request, write_request


def test_a_request_arrives_as_it_was_written() -> None:
    """A large request and a large document with arbitrary bytes are read back unchanged."""
    request = {"mounts": [["/a" * 2000, True]] * 200, "collect": None, "log": "é\0"}
    document = bytes(range(256)) * 8192
    descriptor = write_request(request, document)
    assert read_request(descriptor) == (request, document)
    assert not os.get_inheritable(descriptor)
    os.close(descriptor)
