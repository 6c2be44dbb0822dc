"""Which system calls a sandbox may make: an allowlist of our own, in groups, each with its reason.

What is not named is refused with ``EPERM``, and what is newer than everything named is unknown (``ENOSYS``), so that
programs fall back on what they did before it was there. A container of Docker 20.10's default profile without
capabilities may do the same and a little more: ``io_uring``, whose operations no filter sees; sockets to other machines
of the same host (vsock), which are in no namespace; limits of the first process; and ``socketcall``, through which a
32-bit program could make such a socket unseen.

Deliberately not named, and so refused: mounts and namespaces, modules and kernel images, keyrings, tracing of the
kernel (``bpf``, ``perf_event_open``, ``userfaultfd``), file handles, clocks, swap, accounting, quotas, I/O ports.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

_ALLOWED: Final = """
# Open, close and duplicate files: whose they are, the file system decides.
close close_range creat dup dup2 dup3 fcntl fcntl64 open openat openat2
# Read and write them, and move their offsets.
_llseek lseek pread64 preadv preadv2 pwrite64 pwritev pwritev2 read readv write writev
# Move bytes between them inside the kernel.
copy_file_range readahead sendfile sendfile64 splice tee vmsplice
# Shape and flush them: a size counts against the limits as if it were written.
fadvise64 fadvise64_64 fallocate fdatasync fsync ftruncate ftruncate64 sync sync_file_range syncfs truncate
truncate64
# Look at files and file systems.
access faccessat faccessat2 fstat fstat64 fstatat64 fstatfs fstatfs64 lstat lstat64 newfstatat stat stat64 statfs
statfs64 statx
# Change owners, modes and times: only of what is one's own.
chmod chown chown32 fchmod fchmodat fchown fchown32 fchownat futimesat lchown lchown32 umask utime utimensat
utimensat_time64 utimes
# Directories, links and names. Devices cannot be made without a capability; FIFOs and sockets can.
chdir fchdir getcwd getdents getdents64 link linkat mkdir mkdirat mknod mknodat readlink readlinkat rename renameat
renameat2 rmdir symlink symlinkat unlink unlinkat
# Extended attributes: those that matter need a capability.
fgetxattr flistxattr fremovexattr fsetxattr getxattr lgetxattr listxattr llistxattr lremovexattr lsetxattr
removexattr setxattr
# Locks and notices of changes.
fanotify_mark flock inotify_add_watch inotify_init inotify_init1 inotify_rm_watch
# Wait for many files at once, and for events.
_newselect epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old
eventfd eventfd2 poll ppoll ppoll_time64 pselect6 pselect6_time64 select
# The older asynchronous reading and writing.
io_cancel io_destroy io_getevents io_pgetevents io_pgetevents_time64 io_setup io_submit
# Talk to drivers of files that are open. No device of a sandbox does anything.
ioctl
# Pipes and sockets: there is no network to reach, and socket itself stands below.
accept accept4 bind connect getpeername getsockname getsockopt listen pipe pipe2 recv recvfrom recvmmsg
recvmmsg_time64 recvmsg send sendmmsg sendmsg sendto setsockopt shutdown socketpair
# Memory: what is used counts against the limit.
brk madvise membarrier memfd_create memfd_secret mincore mlock mlock2 mlockall mmap mmap2 mprotect mremap msync
munlock munlockall munmap process_mrelease remap_file_pages
# Start programs and end. What makes a process with namespaces of its own stands below.
execve execveat exit exit_group fork vfork
# Know and wait for processes, of which one sees only those of the sandbox.
getpgid getpgrp getpid getppid getsid gettid pidfd_open setpgid setsid wait4 waitid waitpid
# Debug one's own processes, which gives nothing that they do not have.
ptrace
# Signals.
alarm kill pause pidfd_send_signal restart_syscall rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo
rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_sigtimedwait_time64 rt_tgsigqueueinfo sigaltstack signalfd signalfd4
sigprocmask sigreturn tgkill tkill
# Threads and their locks.
futex futex_time64 futex_waitv get_robust_list get_thread_area rseq set_robust_list set_thread_area set_tid_address
# Scheduling and priorities: only downwards without a capability.
getcpu getpriority ioprio_get ioprio_set sched_get_priority_max sched_get_priority_min sched_getaffinity
sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval sched_rr_get_interval_time64 sched_setaffinity
sched_setattr sched_setparam sched_setscheduler sched_yield setpriority
# Users and groups: who one is, and becoming less. More needs a capability.
capget capset getegid getegid32 geteuid geteuid32 getgid getgid32 getgroups getgroups32 getresgid getresgid32
getresuid getresuid32 getuid getuid32 setfsgid setfsgid32 setfsuid setfsuid32 setgid setgid32 setgroups setgroups32
setregid setregid32 setresgid setresgid32 setresuid setresuid32 setreuid setreuid32 setuid setuid32
# Limits, which can only be lowered, and what was used. Those of other processes (prlimit64) stand below.
getrlimit getrusage setrlimit times ugetrlimit
# Restrict oneself further, and settings of one's own process.
landlock_add_rule landlock_create_ruleset landlock_restrict_self prctl seccomp
# Read clocks and wait. Setting one needs a capability.
adjtimex clock_adjtime clock_adjtime64 clock_getres clock_getres_time64 clock_gettime clock_gettime64
clock_nanosleep clock_nanosleep_time64 gettimeofday nanosleep time
# Timers.
getitimer setitimer timer_create timer_delete timer_getoverrun timer_gettime timer_gettime64 timer_settime
timer_settime64 timerfd_create timerfd_gettime timerfd_gettime64 timerfd_settime timerfd_settime64
# Messages, semaphores and shared memory, in an ipc namespace that is the sandbox's own.
ipc mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedreceive_time64 mq_timedsend mq_timedsend_time64
mq_unlink msgctl msgget msgrcv msgsnd semctl semget semop semtimedop semtimedop_time64 shmat shmctl shmdt shmget
# Facts of the machine, and randomness.
getrandom sysinfo uname
"""
"""Groups of calls, each under a line that says why."""

_OF_MACHINE: Final = {
    "x86_64": ("arch_prctl", "modify_ldt"),
    "aarch64": ("arm_fadvise64_64", "arm_sync_file_range", "sync_file_range2", "breakpoint", "cacheflush", "set_tls"),
}
"""What programs of one kind of machine need to start threads, and to flush what they compiled."""

_ARCHITECTURES: Final = {
    "x86_64": ("SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"),
    "aarch64": ("SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"),
}
"""What else the kernel of such a machine runs: all of it is filtered, by the same list."""

_WITH_CAPABILITY: Final = {
    "CAP_SYS_CHROOT": ("chroot",),
    "CAP_SYS_NICE": ("get_mempolicy", "mbind", "set_mempolicy"),
    "CAP_SYS_PTRACE": ("kcmp", "pidfd_getfd", "process_madvise", "process_vm_readv", "process_vm_writev"),
}
"""What a capability adds that a sandbox was given by name. No other capability adds a call."""

NAMES_OF_GVISOR: Final = ("pselect",)
"""What gVisor's list of calls names otherwise than everybody else, here ``pselect6``: it would refuse ``select`` of any
program. Others know of no call by these names, and pass over them."""

_BITS_OF_PID: Final = 22
"""No kernel gives a process a number above 2 ** 22 (PID_MAX_LIMIT)."""
_LOW_HALF: Final = 0xFFFF_FFFF
"""What the kernel looks at of a number of a process: a filter sees all 64 bits of the argument."""
_AF_VSOCK: Final = 40
_NAMESPACES_OF_CLONE: Final = 0x7E02_0000
"""Every flag of ``clone`` that makes a namespace."""
_PERSONALITIES: Final = (0x0, 0x0008, 0x2_0000, 0x2_0008, 0xFFFF_FFFF)
"""Linux and its 32-bit form, each also with the older machine name, and asking which it is. None weakens memory."""


def profile(machine: str, capabilities: Collection[str] = ()) -> dict[str, Any]:
    """Return the profile of a sandbox with ``capabilities``, as the ``seccomp`` of an OCI configuration.

    ``machine`` is what ``os.uname`` calls it. Raises :class:`KeyError` for one that is not known.
    """
    names = {*_OF_MACHINE[machine], *_names(_ALLOWED), *NAMES_OF_GVISOR}
    for capability in capabilities:
        names.update(_WITH_CAPABILITY.get(capability, ()))
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": errno.EPERM,
        "architectures": list(_ARCHITECTURES[machine]),
        "syscalls": [
            # First: libseccomp allows it, call by call, with each call of sockets that comes after this.
            {"names": ["socketcall"], "action": "SCMP_ACT_ERRNO", "errnoRet": errno.ENOSYS},
            _allow(*sorted(names)),
            _allow("clone", index=0, op="SCMP_CMP_MASKED_EQ", value=_NAMESPACES_OF_CLONE),
            # Its flags lie in memory, where no filter sees them: programs then use clone.
            {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": errno.ENOSYS},
            *(_allow("personality", index=0, op="SCMP_CMP_EQ", value=value) for value in _PERSONALITIES),
            *_limits_but_of_init(),
            _allow("socket", index=0, op="SCMP_CMP_NE", value=_AF_VSOCK),
        ],
    }


def profile_of_gvisor(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a profile for gVisor, which answers ``EPERM`` to all that is refused, whatever the profile says.

    No thread could be made: programs take nothing but ``ENOSYS`` for a reason to do without ``clone3``. So it is
    left to gVisor's own kernel, the one that it would be a way into. That of Debian 12 does not have it, and says so.
    """
    rules = [_allow("clone3") if rule["names"] == ["clone3"] else rule for rule in document["syscalls"]]
    return {**document, "syscalls": rules}


def _limits_but_of_init() -> Iterator[dict[str, Any]]:
    """Return the rules that allow ``prlimit64`` for every process but the sandbox's first, process 1.

    A limit of its processor time would have the kernel end that one with SIGKILL, which a sandbox could then not be
    told to have done itself. Conditions of one call can be added, not taken away: so it is allowed for 0, which is the
    caller, and for every number that has a bit other than the lowest. Asking for process 1's limits goes with it.
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
