"""Mounts in the supervisor's own mount namespace: system calls, and the options that every mount has."""

from __future__ import annotations

import ctypes
import os

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND = 32, 4096
MNT_DETACH = 2

_KEPT_FLAGS = MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC
"""Flags of a source that its bind keeps. In a user namespace the kernel refuses to drop them, and nobody should."""

_BYTES_PER_INODE = 4096
_LEAST_INODES = 1024

_PLAIN = "redirect_dir=nofollow,metacopy=off,index=off"

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)
_libc.umount2.argtypes = (ctypes.c_char_p, ctypes.c_int)


class UnsafeSourceError(Exception):
    """The source of a mount passes through a link, is no file or directory, or is not there."""


def mount_tmpfs(target: str, mode: str, size: int | None = None) -> None:
    """Mount an empty file system in memory, of at most ``size`` bytes."""
    bounds = () if size is None else tmpfs_bounds(size)
    _mount("tmpfs", target, "tmpfs", MS_NOSUID | MS_NODEV, ",".join((f"mode={mode}", *bounds)))


def tmpfs_bounds(size: int) -> tuple[str, str]:
    """Return the options that bound a file system in memory to ``size`` bytes of content, and its number of files.

    So many empty ones take the kernel about a quarter of that. Without a cgroup nobody else counts them.
    """
    return f"size={size}", f"nr_inodes={max(_LEAST_INODES, size // _BYTES_PER_INODE)}"


def mount_overlay(directory: str, lower: str, *, locked: bool, user_attributes: bool) -> None:
    """Show ``lower`` at ``root`` of ``directory``, with changes kept in ``upper`` of it, beside ``work``.

    ``locked``: without devices and set-id programs, as no user namespace can undo. The names are relative and the
    lower one a descriptor: a sandbox sees them among its mounts, and no odd path can break out of them.

    Whatever the kernel's defaults are, ``upper`` holds whole files, directories under their own names, and nothing that
    refers to the image's. So what is in it is read without knowing more than two marks: a character device 0/0 for what
    was removed, and on a directory that took the place of another one the attribute that :func:`opaque` names.
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
    """Return the attribute that ``upper`` has, of value ``y``, on directories that show nothing of ``lower``.

    Nobody in a sandbox can write one: ``trusted.*`` takes a privilege over the whole host, and with
    ``user_attributes`` the overlay keeps names that begin like its own to itself.
    """
    return "user.overlay.opaque" if user_attributes else "trusted.overlay.opaque"


def mount_devices(target: str) -> None:
    """Show, read-only, the devices of the kernel, and of the network namespace that this process is in."""
    _mount("sysfs", target, "sysfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)


def bind(source: str, target: str) -> None:
    """Bind ``source``, which is ours and no link, to ``target``, which is there."""
    _mount(source, target, None, MS_BIND)


def make_read_only(target: str) -> None:
    """Let nobody write to what is mounted at ``target`` any more."""
    _mount(None, target, None, MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV | MS_RDONLY)


def stage(source: str, target: str, *, read_only: bool) -> None:
    """Bind ``source`` to ``target``, which is made. Raises :class:`UnsafeSourceError` for what may not be mounted."""
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


def detach(target: str) -> None:
    """Take away a mount and all that lies on it. What still uses it goes on until it ends."""
    _check(_libc.umount2(target.encode(), MNT_DETACH), target)


def _open_plain(source: str) -> int:
    """Open component by component: whoever swaps one for a link meanwhile is refused."""
    descriptor = os.open("/", os.O_PATH | os.O_DIRECTORY)
    for part in source.split("/")[1:]:
        try:
            below = os.open(part, os.O_PATH | os.O_NOFOLLOW, dir_fd=descriptor)
        except OSError as error:
            raise UnsafeSourceError(f"the mount of {source} cannot be looked at: {error.strerror}") from None
        finally:
            os.close(descriptor)
        descriptor = below
    mode = os.fstat(descriptor).st_mode & 0o170000
    if mode not in {0o040000, 0o100000}:
        os.close(descriptor)
        raise UnsafeSourceError(
            f"the mount of {source} is neither a regular file nor a directory, or passes through a link"
        )
    return descriptor


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str = "") -> None:
    arguments = [None if text is None else os.fsencode(text) for text in (source, target, kind, options)]
    _check(_libc.mount(arguments[0], arguments[1], arguments[2], flags, arguments[3]), target)


def _check(result: int, target: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), target)
