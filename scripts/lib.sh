# Shared by the set-up scripts: messages and package installation.
# shellcheck shell=bash

say() { printf '== %s\n' "$*" >&2; }

# fail MESSAGE [WHAT TO DO NEXT]
fail() {
  printf 'error: %s\n' "$1" >&2
  [ -z "${2:-}" ] || printf '    hint: %s\n' "$2" >&2
  exit 1
}

# Runs a command as root: directly, or through sudo. Without a terminal, sudo must not ask for a password.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif ! command -v sudo >/dev/null; then
    return 1
  elif [ -t 0 ]; then
    sudo "$@"
  else
    sudo -n "$@"
  fi
}

# Installs Debian packages without questions. The output of apt is shown only if it fails.
# Fails if apt-get is missing or root access is not possible.
apt_install() {
  command -v apt-get >/dev/null || return 1
  quietly as_root apt-get -qq update || return 1
  quietly as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends "$@"
}

quietly() {
  local output
  output=$("$@" 2>&1) || {
    printf '%s\n' "$output" >&2
    return 1
  }
}
