"""Search every object and file for the token, and check the commit messages and the files of the last commit.

The candidate's git configuration is not used: its objects are copied into a repository that the checker creates.
"""

import hashlib
import os
import re
import subprocess

from guard import NOT_THERE, RULE_BROKEN, read, require

TOKEN = b"tok_" + hashlib.sha256(b"git-secret\n").hexdigest()[:32].encode()
SUBJECTS = [f"Step {number}" for number in range(12, 0, -1)]
GIT = "project/.git"
FRESH = "/tmp/fresh.git"
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C.UTF-8"}


def git(*arguments, stdin=b""):
    """Run git in the checker's repository. Return its stdout."""
    done = subprocess.run(
        ["/usr/bin/git", "--git-dir", FRESH, *arguments],
        input=stdin,
        capture_output=True,
        env=ENVIRONMENT,
        timeout=60,
        check=False,
    )
    require(done.returncode == 0)
    return done.stdout


def files(top):
    """Yield the path of each file below a directory. Symbolic links are neither followed nor yielded."""
    for directory, _, names in os.walk(top):
        for name in names:
            path = os.path.join(directory, name)
            if not os.path.islink(path):
                yield path


def take_objects():
    """Copy all objects, loose and packed, into the checker's repository. Indexes of packs are not used."""
    subprocess.run(["/usr/bin/git", "init", "-q", "--bare", FRESH], check=True, env=ENVIRONMENT)
    for path in files(os.path.join(GIT, "objects")):
        content = read(path, 16 << 20)
        if path.endswith(".pack"):
            git("unpack-objects", "-q", stdin=content)
        elif loose := re.search(r"objects/([0-9a-f]{2})/([0-9a-f]{38})$", path):
            target = os.path.join(FRESH, "objects", loose[1])
            os.makedirs(target, exist_ok=True)
            if not os.path.exists(os.path.join(target, loose[2])):
                with open(os.path.join(target, loose[2]), "wb") as file:
                    file.write(content)


def head():
    """Return the commit to which the branch main points. Exit unless main is checked out."""
    require(read(os.path.join(GIT, "HEAD")).strip() == b"ref: refs/heads/main", RULE_BROKEN)
    if os.path.exists(os.path.join(GIT, "refs/heads/main")):
        commit = read(os.path.join(GIT, "refs/heads/main")).strip()
    else:
        found = re.search(rb"^([0-9a-f]{40}) refs/heads/main$", read(os.path.join(GIT, "packed-refs")), re.MULTILINE)
        require(found, NOT_THERE)
        commit = found[1]
    require(re.fullmatch(rb"[0-9a-f]{40}", commit))
    return commit.decode()


def expected_files():
    """Return the content of each file that the last commit must contain, by path."""
    steps = {f"step{number}.py": f"print({number})\n" for number in range(1, 13)}
    notes = "".join(f"line {number}\n" for number in range(1, 13))
    return {**steps, "notes.txt": notes, "deploy/prod.env": "HOST=deploy.example.test\n"}


def main():
    require(read("answer.txt").strip() == TOKEN)
    require(os.path.isdir(GIT), NOT_THERE)
    for name in ("objects/info/alternates", "objects/info/http-alternates", "commondir", "shallow"):
        require(not os.path.lexists(os.path.join(GIT, name)), RULE_BROKEN)
    take_objects()
    commit = head()
    require(TOKEN not in git("cat-file", "--batch", "--batch-all-objects"), RULE_BROKEN)
    require(not any(TOKEN in read(path, 16 << 20) for path in files("project")), RULE_BROKEN)
    require(git("log", "--format=%s", commit).decode().split("\n")[:-1] == SUBJECTS)
    git("fsck", "--strict", commit)
    listing = git("ls-tree", "-r", "-z", "--name-only", commit).decode().split("\0")[:-1]
    require({name: git("show", f"{commit}:{name}").decode() for name in listing} == expected_files())


main()
