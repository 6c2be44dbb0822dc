"""Mounts in the supervisor's mount namespace: system calls and mount options."""

from __future__ import annotations

import ctypes
import errno
import os

from securebench.sandboxes.oci.wire import tmpfs_bounds

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND = 32, 4096
MNT_DETACH = 2

_KEPT_FLAGS = MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC
"""Flags of the original mount that a bind mount keeps. In a user namespace, the kernel does not allow clearing them."""

_OF_THE_PATH = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES})
"""Error numbers that are caused by the path. Others, such as too many open files, are not."""

_PLAIN = "redirect_dir=nofollow,metacopy=off,index=off"

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)
_libc.umount2.argtypes = (ctypes.c_char_p, ctypes.c_int)


class UnsafeSourceError(Exception):
    """The source of a mount is missing or inaccessible, passes through a link, or is neither a file nor a directory."""


def mount_tmpfs(target: str, mode: str, size: int | None = None) -> None:
    """Mount an empty tmpfs with the octal ``mode`` and at most ``size`` bytes at ``target``."""
    bounds = () if size is None else tmpfs_bounds(size)
    _mount("tmpfs", target, "tmpfs", MS_NOSUID | MS_NODEV, ",".join((f"mode={mode}", *bounds)))


def mount_overlay(directory: str, lower: str, *, locked: bool, user_attributes: bool) -> None:
    """Mount an overlay over ``lower`` at ``root`` in ``directory``. Changes are written to ``upper`` in ``directory``.

    With ``locked``, the mount forbids devices and set-id programs, and no process in a user namespace can undo this. A
    sandbox can read the options in its list of mounts, so they contain no path of the host. They also contain no path
    whose special characters could inject options.

    The options override the kernel's defaults so that files in ``upper`` are complete, and no directory in it refers to
    another directory of the image. Then ``upper`` has only two kinds of markers: a character device 0/0 for a removed
    entry, and the attribute from :func:`opaque` on a directory that replaced another one.
    """
    descriptor = os.open(lower, os.O_PATH | os.O_DIRECTORY)
    options = f"lowerdir=/proc/self/fd/{descriptor},upperdir=upper,workdir=work,{_PLAIN}"
    os.chdir(directory)
    try:
        flags = MS_NOSUID | MS_NODEV if locked else 0
        _mount("overlay", "root", "overlay", flags, options + (",userxattr" if user_attributes else ""))
    finally:
        os.chdir("/")
        os.close(descriptor)


def opaque(*, user_attributes: bool) -> str:
    """Return the name of the extended attribute of directories in ``upper`` that hide ``lower``. Its value is ``y``.

    A sandbox cannot set it: ``trusted.*`` requires a privilege over the whole host, and with ``user_attributes``, the
    overlay does not let processes set ``user.overlay.*``.
    """
    return "user.overlay.opaque" if user_attributes else "trusted.overlay.opaque"


def mount_devices(target: str) -> None:
    """Mount sysfs read-only: the kernel's devices, including those of this process's network namespace."""
    _mount("sysfs", target, "sysfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)


def bind(source: str, target: str) -> None:
    """Bind ``source``, which belongs to the supervisor, to the existing ``target``. ``source`` may be a link."""
    _mount(source, target, None, MS_BIND)


def make_read_only(target: str) -> None:
    """Remount ``target`` read-only."""
    _mount(None, target, None, MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV | MS_RDONLY)


def stage(source: str, target: str, *, read_only: bool) -> None:
    """Create ``target`` and bind ``source`` to it. Raises :class:`UnsafeSourceError` for an unsafe ``source``."""
    descriptor = _open_plain(source)
    try:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            os.mkdir(target)
        else:
            os.close(os.open(target, os.O_CREAT | os.O_EXCL, 0o600))
        _mount(f"/proc/self/fd/{descriptor}", target, None, MS_BIND)
        kept = os.fstatvfs(descriptor).f_flag & _KEPT_FLAGS
        flags = MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV | kept | (MS_RDONLY if read_only else 0)
        _mount(None, target, None, flags)
    finally:
        os.close(descriptor)


def mount_over(directory: str, size: int) -> int:
    """Mount an empty tmpfs of at most ``size`` bytes over ``directory``, and return a descriptor of the tmpfs.

    To unmount the tmpfs, pass the descriptor's path in ``/proc/self/fd`` to :func:`detach`, because ``directory`` may
    have been replaced by then. Raises ``OSError`` and :class:`UnsafeSourceError`.
    """
    below = _open_plain(directory)
    try:
        mount_tmpfs(f"/proc/self/fd/{below}", "700", size)
    finally:
        os.close(below)
    top = _open_plain(directory)
    try:
        return os.open(f"/proc/self/fd/{top}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(top)


def detach(target: str) -> None:
    """Unmount ``target`` and everything below it. Processes can still use files that they have already opened there."""
    _check(_libc.umount2(target.encode(), MNT_DETACH), target)


def _open_plain(source: str) -> int:
    """Open ``source`` component by component, to reject a component that was replaced by a link."""
    descriptor = os.open("/", os.O_PATH | os.O_DIRECTORY)
    for part in source.split("/")[1:]:
        try:
            below = os.open(part, os.O_PATH | os.O_NOFOLLOW, dir_fd=descriptor)
        except OSError as error:
            if error.errno not in _OF_THE_PATH:
                raise
            raise UnsafeSourceError(f"the mount of {source} cannot be inspected: {error.strerror}") from None
        finally:
            os.close(descriptor)
        descriptor = below
    mode = os.fstat(descriptor).st_mode & 0o170000
    if mode not in {0o040000, 0o100000}:
        os.close(descriptor)
        raise UnsafeSourceError(
            f"cannot mount {source}: it is a link or a special file, not a regular file or a directory"
        )
    return descriptor


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str = "") -> None:
    arguments = [None if text is None else os.fsencode(text) for text in (source, target, kind, options)]
    _check(_libc.mount(arguments[0], arguments[1], arguments[2], flags, arguments[3]), target)


def _check(result: int, target: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), target)
