"""The system calls that a sandbox may make: SecureBench's own allowlist, in groups with the reason for each.

Some calls are allowed only with certain arguments (:func:`profile`). Calls that are not allowed fail with ``EPERM``,
except ``clone3``, ``io_setup``, ``socketcall`` and calls newer than all listed ones. These fail with ``ENOSYS``, so
that programs fall back to other calls. The default profile of Docker 20.10 without capabilities allows the same calls
and a few more:

* ``io_uring``, whose operations a filter cannot see,
* the older asynchronous I/O, whose requests count against a limit of the whole host,
* sockets of address families that no namespace separates, such as vsock to other virtual machines of the same host,
* setting the limits of the first process,
* ``socketcall``, with which a 32-bit program could create a vsock socket that the filter cannot see.

Calls for the following are deliberately not listed: mounts and namespaces, modules and kernel images, keyrings, kernel
tracing (``bpf``, ``perf_event_open``, ``userfaultfd``), file handles, clocks, swap, accounting, quotas, I/O ports.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

_ALLOWED: Final = """
# Open, close and duplicate files: the file system checks permissions.
close close_range creat dup dup2 dup3 fcntl fcntl64 open openat openat2
# Read and write files, and move their offsets.
_llseek lseek pread64 preadv preadv2 pwrite64 pwritev pwritev2 read readv write writev
# Copy bytes between files inside the kernel.
copy_file_range readahead sendfile sendfile64 splice tee vmsplice
# Resize and flush files: allocated space counts against the limits like written data.
fadvise64 fadvise64_64 fallocate fdatasync fsync ftruncate ftruncate64 sync sync_file_range syncfs truncate
truncate64
# Query files and file systems.
access faccessat faccessat2 fstat fstat64 fstatat64 fstatfs fstatfs64 lstat lstat64 newfstatat stat stat64 statfs
statfs64 statx
# Change owners, modes and times: the kernel allows this only for the user's own files.
chmod chown chown32 fchmod fchmodat fchown fchown32 fchownat futimesat lchown lchown32 umask utime utimensat
utimensat_time64 utimes
# Directories, links and names. Creating a device requires a capability; creating a FIFO or socket does not.
chdir fchdir getcwd getdents getdents64 link linkat mkdir mkdirat mknod mknodat readlink readlinkat rename renameat
renameat2 rmdir symlink symlinkat unlink unlinkat
# Extended attributes: the dangerous ones require a capability.
fgetxattr flistxattr fremovexattr fsetxattr getxattr lgetxattr listxattr llistxattr lremovexattr lsetxattr
removexattr setxattr
# File locks and change notifications.
fanotify_mark flock inotify_add_watch inotify_init inotify_init1 inotify_rm_watch
# Wait for several files or events.
_newselect epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old
eventfd eventfd2 poll ppoll ppoll_time64 pselect6 pselect6_time64 select
# Control the drivers of open files. The devices in a sandbox are harmless.
ioctl
# Pipes and sockets: there is no network. For socket itself, see profile().
accept accept4 bind connect getpeername getsockname getsockopt listen pipe pipe2 recv recvfrom recvmmsg
recvmmsg_time64 recvmsg send sendmmsg sendmsg sendto setsockopt shutdown socketpair
# Memory: it counts against the limit.
brk madvise membarrier memfd_create memfd_secret mincore mlock mlock2 mlockall mmap mmap2 mprotect mremap msync
munlock munlockall munmap process_mrelease remap_file_pages
# Start programs and exit. For clone, which can create namespaces, see profile().
execve execveat exit exit_group fork vfork
# Identify processes and wait for them. Only processes of the sandbox are visible.
getpgid getpgrp getpid getppid getsid gettid pidfd_open setpgid setsid wait4 waitid waitpid
# Debug processes of the same user, which gives no additional privileges.
ptrace
# Signals.
alarm kill pause pidfd_send_signal restart_syscall rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo
rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_sigtimedwait_time64 rt_tgsigqueueinfo sigaltstack signalfd signalfd4
sigprocmask sigreturn tgkill tkill
# Threads and their locks.
futex futex_time64 futex_waitv get_robust_list get_thread_area rseq set_robust_list set_thread_area set_tid_address
# Scheduling and priorities: without a capability, priorities can only be lowered.
getcpu getpriority ioprio_get ioprio_set sched_get_priority_max sched_get_priority_min sched_getaffinity
sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval sched_rr_get_interval_time64 sched_setaffinity
sched_setattr sched_setparam sched_setscheduler sched_yield setpriority
# Users and groups: query them, and give up privileges. Gaining privileges requires a capability.
capget capset getegid getegid32 geteuid geteuid32 getgid getgid32 getgroups getgroups32 getresgid getresgid32
getresuid getresuid32 getuid getuid32 setfsgid setfsgid32 setfsuid setfsuid32 setgid setgid32 setgroups setgroups32
setregid setregid32 setresgid setresgid32 setresuid setresuid32 setreuid setreuid32 setuid setuid32
# Limits, which can only be lowered, and resource usage. For limits of other processes (prlimit64), see profile().
getrlimit getrusage setrlimit times ugetrlimit
# Restrict the calling process further, and change its settings.
landlock_add_rule landlock_create_ruleset landlock_restrict_self prctl seccomp
# Read clocks and wait. Setting a clock requires a capability.
adjtimex clock_adjtime clock_adjtime64 clock_getres clock_getres_time64 clock_gettime clock_gettime64
clock_nanosleep clock_nanosleep_time64 gettimeofday nanosleep time
# Timers.
getitimer setitimer timer_create timer_delete timer_getoverrun timer_gettime timer_gettime64 timer_settime
timer_settime64 timerfd_create timerfd_gettime timerfd_gettime64 timerfd_settime timerfd_settime64
# Messages, semaphores and shared memory, in the sandbox's own ipc namespace.
ipc mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedreceive_time64 mq_timedsend mq_timedsend_time64
mq_unlink msgctl msgget msgrcv msgsnd semctl semget semop semtimedop semtimedop_time64 shmat shmctl shmdt shmget
# System information and random numbers.
getrandom sysinfo uname
"""
"""Groups of calls. The line above each group describes the calls or says why they are allowed."""

_OF_MACHINE: Final = {
    "x86_64": ("arch_prctl", "modify_ldt"),
    "aarch64": ("arm_fadvise64_64", "arm_sync_file_range", "sync_file_range2", "breakpoint", "cacheflush", "set_tls"),
}
"""Calls that exist on one architecture only. Some set the address of thread-local storage or flush compiled code."""

_ARCHITECTURES: Final = {
    "x86_64": ("SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"),
    "aarch64": ("SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"),
}
"""For each machine type, all architectures whose programs its kernel can run. The same calls are allowed for each."""

_WITH_CAPABILITY: Final = {
    "CAP_SYS_CHROOT": ("chroot",),
    "CAP_SYS_NICE": ("get_mempolicy", "mbind", "set_mempolicy"),
    "CAP_SYS_PTRACE": ("kcmp", "pidfd_getfd", "process_madvise", "process_vm_readv", "process_vm_writev"),
}
"""The calls that each of these capabilities allows in addition. Other capabilities add no calls."""

NAMES_OF_GVISOR: Final = ("pselect",)
"""gVisor's own names for calls, here for ``pselect6``. Other runtimes do not know them and ignore them.

Without this name, gVisor would refuse the call, and so ``select`` would fail in every program."""

_BITS_OF_PID: Final = 22
"""No kernel assigns a pid above 2 ** 22 (PID_MAX_LIMIT)."""
_LOW_HALF: Final = 0xFFFF_FFFF
"""A mask of the low 32 bits. The kernel reads only these bits of an ``int`` argument, but a filter sees all 64 bits."""
_FAMILIES: Final = (1, 2, 10, 16, 17)
"""The address families UNIX, INET, INET6, NETLINK and PACKET.

A network namespace isolates their sockets, except UNIX sockets with a path, which only a shared file system exposes."""
_NAMESPACES_OF_CLONE: Final = 0x7E02_0000
"""All flags of ``clone`` that create a namespace."""
_PERSONALITIES: Final = (0x0, 0x0008, 0x2_0000, 0x2_0008, 0xFFFF_FFFF)
"""Allowed arguments of ``personality``. None of them weakens memory protection.

They are ``PER_LINUX`` and ``PER_LINUX32``, each with or without ``UNAME26``, and a value that changes nothing."""


def profile(machine: str, capabilities: Collection[str] = ()) -> dict[str, Any]:
    """Return the profile of a sandbox with ``capabilities``, as the ``seccomp`` of an OCI configuration.

    ``machine`` is a machine type, as in ``os.uname().machine``. Raises ``KeyError`` for an unknown type.
    """
    names = {*_OF_MACHINE[machine], *_names(_ALLOWED), *NAMES_OF_GVISOR}
    for capability in capabilities:
        names.update(_WITH_CAPABILITY.get(capability, ()))
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": errno.EPERM,
        "architectures": list(_ARCHITECTURES[machine]),
        "syscalls": [
            # This rule precedes the socketcall rules that libseccomp adds for every socket call that is allowed.
            {"names": ["socketcall"], "action": "SCMP_ACT_ERRNO", "errnoRet": errno.ENOSYS},
            _allow(*sorted(names)),
            _allow("clone", index=0, op="SCMP_CMP_MASKED_EQ", value=_NAMESPACES_OF_CLONE),
            # The flags of clone3 are in memory, where no filter can see them. On ENOSYS, programs fall back to clone.
            {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": errno.ENOSYS},
            *(_allow("personality", index=0, op="SCMP_CMP_EQ", value=value) for value in _PERSONALITIES),
            *_limits_but_of_init(),
            *(_allow("socket", index=0, op="SCMP_CMP_MASKED_EQ", value=_LOW_HALF, valueTwo=one) for one in _FAMILIES),
            # Asynchronous requests count against a limit of the whole host. On ENOSYS, programs use other calls.
            {"names": ["io_setup"], "action": "SCMP_ACT_ERRNO", "errnoRet": errno.ENOSYS},
        ],
    }


def profile_of_gvisor(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the profile ``document`` that also allows ``clone3``, for gVisor.

    gVisor returns ``EPERM`` for every call that a profile refuses, but programs fall back to ``clone`` only on
    ``ENOSYS``. With a refused ``clone3``, they could not start threads. Allowing the call is safe, because it reaches
    only gVisor's own kernel. The gVisor version in Debian 12 does not implement ``clone3`` and returns ``ENOSYS``.
    """
    rules = [_allow("clone3") if rule["names"] == ["clone3"] else rule for rule in document["syscalls"]]
    return {**document, "syscalls": rules}


def _limits_but_of_init() -> Iterator[dict[str, Any]]:
    """Return rules that allow ``prlimit64``, but not for the limits of process 1, the sandbox's first process.

    Otherwise, a sandbox could set a CPU time limit for process 1. The kernel would then kill process 1 with SIGKILL, as
    if the kill came from outside. A rule cannot simply exclude pid 1: it would compare all 64 bits of the argument, but
    the kernel reads only 32. So the first rule allows the call for pid 0, which means the caller. Each other rule
    allows the call for pids in which a certain bit is 1. The lowest bit has no such rule, so pid 1 is excluded. Reading
    the limits of process 1 is blocked, too.
    """
    yield _allow("prlimit64", index=0, op="SCMP_CMP_MASKED_EQ", value=_LOW_HALF)
    for bit in range(1, _BITS_OF_PID + 1):
        yield _allow("prlimit64", index=0, op="SCMP_CMP_MASKED_EQ", value=1 << bit, valueTwo=1 << bit)


def _names(groups: str) -> Iterator[str]:
    for line in groups.splitlines():
        if not line.startswith("#"):
            yield from line.split()


def _allow(*names: str, **condition: str | int) -> dict[str, Any]:
    arguments = {"args": [{"valueTwo": 0, **condition}]} if condition else {}
    return {"names": list(names), "action": "SCMP_ACT_ALLOW", **arguments}
