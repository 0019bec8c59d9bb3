#!/usr/bin/env bash
# Brings what the tests and benchmarks need and is missing: setup.sh [packages] [engine] [reference]
#   packages   Debian packages (a C compiler for the race detector, Docker Engine, iptables, debootstrap, busybox)
#   engine     a running Docker Engine; one is started in the background when none answers
#   reference  the Python reference in a virtual environment of its own
# What is there is left as it is. Needs root for packages and engine.
set -euo pipefail

cache="${AGENT_ENV_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/agent-env-test}"
mkdir -p "$cache"

say() { printf '== %s\n' "$*" >&2; }

need_root() {
  [ "$(id -u)" = 0 ] || { say "$1 is missing and installing it needs root: run as root, or install it yourself"; exit 1; }
}

packages() {
  local want=()
  command -v gcc >/dev/null || want+=(gcc libc6-dev)
  command -v dockerd >/dev/null || want+=(docker.io)
  command -v iptables >/dev/null || want+=(iptables)
  command -v debootstrap >/dev/null || want+=(debootstrap)
  [ -x /bin/busybox ] || [ -x /usr/bin/busybox ] || want+=(busybox-static)
  command -v python3 >/dev/null || want+=(python3)
  python3 -c 'import venv, ensurepip' 2>/dev/null || want+=(python3-venv)
  command -v git >/dev/null || want+=(git)
  command -v make >/dev/null || want+=(make)
  command -v ip >/dev/null || want+=(iproute2)
  [ "${#want[@]}" = 0 ] && return 0
  need_root "${want[*]}"
  say "installing ${want[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "${want[@]}" >/dev/null
}

stale() {
  local pid
  pid=$(cat "$1" 2>/dev/null) || return 0
  [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = "$2" ] || rm -f "$1"
}

engine() {
  if docker info >/dev/null 2>&1; then return 0; fi
  need_root "a running Docker Engine"
  say "starting dockerd"
  # A number that a killed daemon left behind may belong to another process by now, and would keep the new one from starting.
  stale /var/run/docker.pid dockerd
  stale /var/run/docker/containerd/containerd.pid containerd
  # The reference's local containers need a default bridge with a gateway of its own; ours need not.
  nohup dockerd --bip 172.17.0.1/16 >"$cache/dockerd.log" 2>&1 </dev/null &
  for _ in $(seq 60); do
    docker info >/dev/null 2>&1 && return 0
    sleep 1
  done
  say "dockerd did not start; the end of $cache/dockerd.log:"
  tail -n 20 "$cache/dockerd.log" >&2
  exit 1
}

reference() {
  local venv="$cache/reference"
  if ! [ -x "$venv/bin/agent-env" ]; then
    say "installing the reference"
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install -q --disable-pip-version-check agentenv-framework==0.9.1364 agentenv-framework-protocol==0.1.379
  fi
}

for part in "$@"; do
  case "$part" in
    packages | engine | reference) "$part" ;;
    *) say "unknown part: $part"; exit 2 ;;
  esac
done
