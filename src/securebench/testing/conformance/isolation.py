"""Checks: what a process in a sandbox can see, do and reach."""

from __future__ import annotations

import json
import os
import socket

from securebench.sandboxes.base import BASE_ENVIRONMENT, UNPRIVILEGED_USER, Mount
from securebench.testing.conformance.bench import (
    Bench,
    CheckRegistry,
    ConformanceError,
    probe_command,
    require,
    require_equal,
    workspace_path,
)
from securebench.testing.conformance.collected_tree import read_directory

CHECKS = CheckRegistry()

ROOT = (0, 0)

FORBIDDEN = (
    *("chroot", "mount", "unmount", "new user namespace", "new mount namespace", "set host name", "make device"),
    *("write kernel setting", "write sysrq", "write cgroup", "read kernel memory", "raw socket", "packet socket"),
    *("kernel keyring", "engine socket", "change clock", "set priority"),
)
"""Attempts of the probe that must fail in every sandbox without added capabilities, even for root."""


@CHECKS
def the_environment_is_exact(bench: Bench) -> None:
    """A process has exactly the variables of its spec and command, and none of the image or the host."""
    for persistent in (False, True):
        sandbox = bench.sandbox(persistent=persistent, environment={**BASE_ENVIRONMENT, "OURS": "spec"})
        result = sandbox.run(probe_command("facts", environment={"MORE": "é\n=", "EMPTY": ""}))
        found = json.loads(result.stdout)["environment"]
        expected = {**BASE_ENVIRONMENT, "OURS": "spec", "MORE": "é\n=", "EMPTY": ""}
        require_equal(found, expected, "variables")


@CHECKS
def a_command_overrides_its_spec(bench: Bench) -> None:
    """A variable of the command replaces the variable of the same name in the spec."""
    for persistent in (False, True):
        result = bench.sandbox(persistent=persistent).run(probe_command("facts", environment={"HOME": "/elsewhere"}))
        require_equal(json.loads(result.stdout)["environment"]["HOME"], "/elsewhere", "HOME")


@CHECKS
def the_first_process_has_no_other_variables(bench: Bench) -> None:
    """If the environment of a sandbox's first process is readable, it has only variables of the spec (J15)."""
    allowed = {f"{name}={value}" for name, value in BASE_ENVIRONMENT.items()}
    found = set(bench.facts()["first_environment"])
    require(found <= allowed, f"unexpected variables in /proc/1/environ: {sorted(found - allowed)}")


@CHECKS
def arguments_arrive_exactly(bench: Bench) -> None:
    """Arguments with spaces, newlines, quotes, Unicode, options or shell syntax arrive unchanged (A21)."""
    arguments = ("a b", "line\nbreak", "", "é✓𝄞", "-rf", "--help", "$(touch x)", "'\"`", "\\", "*", "\x1b[31m")
    for persistent in (False, True):
        result = bench.sandbox(persistent=persistent).run(probe_command("facts", *arguments))
        require_equal(json.loads(result.stdout)["argv"], ["-c", "facts", *arguments], "arguments")


@CHECKS
def the_working_directory_is_set(bench: Bench) -> None:
    """A process starts in the working directory of its command, or else of its spec."""
    require_equal(bench.facts(workdir="/usr")["workdir"], "/usr", "working directory of the spec")
    for persistent in (False, True):
        result = bench.sandbox(persistent=persistent, workdir="/usr").run(probe_command("facts", workdir="/etc"))
        require_equal(json.loads(result.stdout)["workdir"], "/etc", "working directory of the command")


@CHECKS
def files_are_described(bench: Bench) -> None:
    """``statx`` works, even with the flags that ``ls`` and ``stat`` of coreutils 9 pass to it."""
    require_equal(bench.output("describe", "/etc"), "ok", "statx of /etc with AT_NO_AUTOMOUNT")


@CHECKS
def threads_can_be_made(bench: Bench) -> None:
    """Threads can be created. Where ``clone3`` is blocked, the error makes programs fall back to ``clone``."""
    require_equal(bench.output("threads", "16"), "16", "threads at once")


@CHECKS.needing("groups")
def the_user_is_nobody(bench: Bench) -> None:
    """By default a process runs as nobody, without supplementary groups."""
    found = bench.facts()
    uid, gid = UNPRIVILEGED_USER
    require_equal((found["uid"], found["gid"], found["groups"]), ([uid, uid], [gid, gid], []), "user and groups")


@CHECKS.needing("groups")
def the_user_is_the_specs(bench: Bench) -> None:
    """A process runs as the user of its spec, even if the image has no such user."""
    for user in (ROOT, (12345, 23456)):
        found = bench.facts(user=user)
        require_equal((found["uid"][0], found["gid"][0], found["groups"]), (*user, []), "user and groups")


@CHECKS
def the_root_is_read_only(bench: Bench) -> None:
    """Nothing in the root file system can be written, not even by root (I11)."""
    for path in ("/x", "/etc/passwd", "/usr/bin/x", "/var/tmp/x"):  # noqa: S108 - paths inside the sandbox
        outcome = bench.output("write", path, "", user=ROOT)
        require_equal(outcome, "EROFS", f"writing {path} as root")


@CHECKS
def a_writable_root_is_opt_in(bench: Bench) -> None:
    """With a writable root file system in the spec, the root user may write to it, and the image does not change."""
    sandbox = bench.sandbox(read_only=False, user=ROOT)
    require_equal(sandbox.run(probe_command("write", "/x", "")).stdout, b"ok\n", "writing as root")
    require_equal(bench.output("read", "/x"), "ENOENT", "the file in the next sandbox")


@CHECKS.needing("file-owners")
def others_files_cannot_be_written(bench: Bench) -> None:
    """On a writable root file system, an ordinary user cannot write to files of the root user."""
    for path in ("/etc/passwd", "/x"):
        require_equal(bench.output("write", path, "", read_only=False), "EACCES", f"writing {path}")


@CHECKS
def tmp_is_writable(bench: Bench) -> None:
    """Programs can write to ``/tmp``."""
    require_equal(bench.output("write", "/tmp/x", "text"), "ok", "writing /tmp/x")  # noqa: S108


@CHECKS
def mounts_are_seen(bench: Bench) -> None:
    """A mounted directory or file of the host is visible at its target."""
    directory = bench.shared()
    (directory / "note").write_text("from the host")
    (directory / "note").chmod(0o644)
    mounts = (Mount(directory, workspace_path()), Mount(directory / "note", "/opt/note"))
    require_equal(bench.output("read", workspace_path("note"), mounts=mounts), "from the host\nok", "the directory")
    require_equal(bench.output("read", "/opt/note", mounts=mounts), "from the host\nok", "the file")


@CHECKS
def read_only_mounts_stay_as_they_are(bench: Bench) -> None:
    """A read-only mount cannot be written or emptied, not even by root (A13, H04)."""
    directory = bench.shared()
    (directory / "note").write_text("from the host")
    for action in (("write", "note", "x"), ("write", "new", "x"), ("remove", "note")):
        path = workspace_path(action[1])
        mounts = (Mount(directory, workspace_path()),)
        outcome = bench.output(action[0], path, *action[2:], mounts=mounts, user=ROOT)
        require_equal(outcome, "EROFS", f"{action[0]} {path}")
    require_equal([path.name for path in directory.iterdir()], ["note"], "the host's files")
    require_equal((directory / "note").read_text(), "from the host", "the host's file")


@CHECKS
def writable_mounts_are_shared(bench: Bench) -> None:
    """Data that a command wrote to a writable mount is on the host when the command has ended."""
    directory = bench.shared()
    mounts = (Mount(directory, workspace_path(), read_only=False),)
    require_equal(bench.output("write", workspace_path("note"), "from inside", mounts=mounts), "ok", "writing")
    require_equal((directory / "note").read_text(), "from inside", "the host's file")


@CHECKS
def mounts_keep_their_content(bench: Bench) -> None:
    """A command that adds a file to a writable mount leaves all other files, modes, links and names there unchanged."""
    directory = bench.shared()
    (directory / "empty").mkdir()
    (directory / "program").write_bytes(bytes(range(256)) * 999)
    (directory / os.fsdecode(b"odd \xff\n-name")).write_text("odd")
    (directory / "link").symlink_to("/nowhere/else")
    for path, mode in ((directory / "empty", 0o755), (directory / "program", 0o755)):
        path.chmod(mode)
    before = read_directory(directory)
    mounts = (Mount(directory, workspace_path(), read_only=False),)
    require_equal(bench.output("write", workspace_path("note"), "x", mounts=mounts), "ok", "writing")
    (directory / "note").unlink()
    require_equal(read_directory(directory), before, "the directory")


@CHECKS
def mounts_can_be_refreshed(bench: Bench) -> None:
    """After ``refresh`` a sandbox sees no file that was removed from the source of a mount."""
    directory = bench.shared()
    (directory / "note").write_text("from the host")
    (directory / "note").chmod(0o644)
    mount = Mount(directory, workspace_path())
    sandbox = bench.sandbox(mounts=(mount,), persistent=True)
    command = probe_command("read", workspace_path("note"))
    require_equal(sandbox.run(command).stdout, b"from the host\nok\n", "the file")
    (directory / "note").unlink()
    sandbox.refresh(mount)
    require_equal(sandbox.run(command).stdout, b"ENOENT\n", "the removed file")


@CHECKS
def files_of_root_can_be_read_and_removed(bench: Bench) -> None:
    """The driver's caller can read and remove private files that root in a sandbox creates in a mounted directory."""
    directory = bench.shared()
    mounts = (Mount(directory, workspace_path(), read_only=False),)
    require_equal(bench.output("shut", workspace_path("closed"), mounts=mounts, user=ROOT), "ok", "writing")
    try:
        require_equal((directory / "closed" / "note").read_text(), "from inside", "the file")
        (directory / "closed" / "note").unlink()
        (directory / "closed").rmdir()
    except PermissionError as error:
        raise ConformanceError(f"the caller cannot access what root in the sandbox created: {error}") from None


@CHECKS
def there_is_only_loopback(bench: Bench) -> None:
    """Without a network, loopback is the only interface, in persistent and ephemeral sandboxes (J03, J12)."""
    for persistent in (False, True):
        require_equal(bench.facts(persistent=persistent)["interfaces"], ["lo"], "interfaces")


@CHECKS
def nothing_outside_can_be_reached(bench: Bench) -> None:
    """No outside address can be reached, neither public, nor link-local, nor on the engine's bridge (J01, J03, J08)."""
    for address in ("192.0.2.1", "169.254.169.254", "172.17.0.1", "2001:db8::1"):
        outcome = bench.output("connect", address, "80")
        require(outcome in {"ENETUNREACH", "EHOSTUNREACH", "EADDRNOTAVAIL"}, f"connecting to {address}: {outcome}")


@CHECKS
def the_hosts_loopback_is_unreachable(bench: Bench) -> None:
    """A server on the host's loopback cannot be reached from a sandbox."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        outcome = bench.output("connect", "127.0.0.1", str(server.getsockname()[1]))
    require_equal(outcome, "ECONNREFUSED", "connecting to the host's port")


@CHECKS
def names_are_not_resolved(bench: Bench) -> None:
    """Names are not resolved (J04)."""
    require_equal(bench.output("resolve", "example.com"), "unknown", "resolving example.com")


@CHECKS
def localhost_works(bench: Bench) -> None:
    """A process can connect to itself as ``localhost``."""
    require_equal(bench.output("loopback", "localhost"), "ok", "connecting to itself")


@CHECKS
def there_are_no_capabilities(bench: Bench) -> None:
    """No process has or can gain capabilities, not even root, in persistent and ephemeral sandboxes (A22)."""
    for persistent in (False, True):
        found = bench.facts(user=ROOT, persistent=persistent)["capabilities"]
        require({"CapEff", "CapBnd"} <= set(found), "the capabilities cannot be read")
        require_equal(set(found.values()), {0}, f"capabilities {found}")


@CHECKS
def capabilities_are_opt_in(bench: Bench) -> None:
    """Root has a capability that the spec adds, and no other."""
    chroot = 1 << 18
    found = bench.facts(user=ROOT, cap_add=("SYS_CHROOT",))["capabilities"]
    require_equal((found["CapEff"], found["CapBnd"]), (chroot, chroot), "capabilities")
    require_equal(
        json.loads(bench.output("attempt", "chroot", user=ROOT, cap_add=("SYS_CHROOT",))), ["chroot"], "chroot"
    )


@CHECKS
def privileges_cannot_be_gained(bench: Bench) -> None:
    """No process can gain privileges, and system calls are filtered, in persistent and ephemeral sandboxes (I18)."""
    for persistent in (False, True):
        found = bench.facts(persistent=persistent)
        require(found["no_new_privileges"], "processes can gain new privileges")
        require(found["seccomp_filter"], "system calls are not filtered")


@CHECKS
def set_id_files_are_not_honoured(bench: Bench) -> None:
    """A set-id file of root in a shared directory gives an ordinary user no rights of root (H06)."""
    mounts = (Mount(bench.shared(), workspace_path(), read_only=False),)
    require_equal(bench.output("plant", workspace_path("trap"), mounts=mounts, user=ROOT), "0o6755", "the trap's mode")
    uid, gid = UNPRIVILEGED_USER
    require_equal(bench.output("harvest", workspace_path("trap"), mounts=mounts), f"{uid} {gid}", "the user it runs as")


@CHECKS
def an_ordinary_user_cannot_do_what_is_forbidden(bench: Bench) -> None:
    """Mounts, namespaces, devices, kernel settings, raw sockets, keyrings and the engine are blocked (I01, I18)."""
    require_equal(json.loads(bench.output("attempt", *FORBIDDEN, "become root")), [], "what an ordinary user could do")


@CHECKS
def root_cannot_do_what_is_forbidden(bench: Bench) -> None:
    """Mounts, namespaces, devices, raw sockets and other privileged actions are blocked for root, too (A22, I18)."""
    require_equal(json.loads(bench.output("attempt", *FORBIDDEN, user=ROOT)), [], "what root could do")


@CHECKS
def there_are_no_devices(bench: Bench) -> None:
    """A sandbox has no block device (I19)."""
    require_equal(bench.facts()["devices"], [], "block devices")


@CHECKS
def only_its_own_processes_are_seen(bench: Bench) -> None:
    """A process sees only the processes of its own sandbox (B07)."""
    require(bench.facts()["processes"] <= 3, "processes of the host are visible")


@CHECKS
def the_host_name_reveals_nothing(bench: Bench) -> None:
    """Every sandbox has the host name ``sandbox``, whatever the name of the host is."""
    require_equal(bench.facts()["hostname"], "sandbox", "host name")


@CHECKS
def two_sandboxes_share_nothing(bench: Bench) -> None:
    """Two concurrent sandboxes see neither files nor processes of each other (A24, F11)."""
    first, second = (bench.sandbox(persistent=True) for _ in range(2))
    require_equal(first.run(probe_command("write", "/tmp/x", "1")).stdout, b"ok\n", "writing")  # noqa: S108
    process = first.open(probe_command("sleep", "30"))
    require_equal(second.run(probe_command("read", "/tmp/x")).stdout, b"ENOENT\n", "the other's file")  # noqa: S108
    seen = json.loads(second.run(probe_command("facts")).stdout)["processes"]
    require(seen <= 4, f"{seen} processes are visible")
    process.kill()
