# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What every other part leans on: settings, messages, waiting, the lock.
# Promises: no side effect when sourced; every setting can be given from outside.

# --- settings ---------------------------------------------------------------------------------
# One name separates two labs on one machine: it is in the bridge, the links and the folder.
LAB_NAME=${COBALTCORE_LAB_NAME:-cclab}
LAB_DIR=${COBALTCORE_LAB_DIR:-/tmp/cobaltcore-lab-$UID}
LAB_CACHE=${COBALTCORE_LAB_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/cobaltcore-lab}
LAB_NET=${COBALTCORE_LAB_NET:-10.99.0}        # the first three numbers of a /24
# A running lab knows its own name and range: nobody has to repeat them to look at it or stop it.
if [[ -r $LAB_DIR/lab.id ]]; then read -r LAB_NAME LAB_NET _ <"$LAB_DIR/lab.id"; fi
LAB_BRIDGE=$LAB_NAME-br
LAB_MAX_HOSTS=16
LAB_VIRT=${COBALTCORE_LAB_VIRT:-$([[ -w /dev/kvm ]] && echo kvm || echo qemu)} # qemu: software only

LAB_GATEWAY=$LAB_NET.254                      # this machine, seen from inside the lab
LAB_CONTROL=$LAB_NET.250                      # the machine that holds the control plane
host_address() { echo "$LAB_NET.$((10#${1#hv}))"; }
bmc_address() { echo "$LAB_NET.$((100 + 10#${1#hv}))"; }
BMC_PORT=8000
BMC_USER='admin'
BMC_PASSWORD=redfish
ADMIN_PASSWORD=secret                         # reachable only on the lab's own bridge
SERVICE_PASSWORD=os

# Python of the distribution, never one that a version manager put in front of it.
PYTHON=/usr/bin/python3

# --- messages ---------------------------------------------------------------------------------
say() { printf 'lab: %s\n' "$*" >&2; }
warn() { printf 'lab: WARNING: %s\n' "$*" >&2; }
die() { printf 'lab: ERROR: %s\n' "$*" >&2; exit 1; }

# --- waiting ----------------------------------------------------------------------------------
# wait_for WHAT SECONDS COMMAND...: runs COMMAND until it succeeds; says what it waited for if not.
wait_for() {
  local what=$1 seconds=$2 deadline
  shift 2
  deadline=$((SECONDS + seconds))
  until "$@" >/dev/null 2>&1; do
    if ((SECONDS >= deadline)); then
      say "gave up after $seconds s waiting for $what"
      return 1
    fi
    sleep 0.2
  done
}

# stage NAME COMMAND...: runs it and notes how long it took, for the table at the end.
stage() {
  local name=$1 begin=$EPOCHREALTIME rc=0
  shift
  "$@" || rc=$?
  note_stage "$name" "$begin" "$rc"
  return "$rc"
}
note_stage() { # NAME BEGIN RC
  local took
  took=$(awk -v a="$2" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }')
  [[ -z ${LAB_STAGES:-} ]] || printf '%s\t%s\t%s\n' "$1" "$took" "$3" >>"$LAB_STAGES"
  say "$1: $took s"
}

# --- order ------------------------------------------------------------------------------------
need_root() { ((EUID == 0)) || die "needs root (namespaces, bridge, KVM): run it with sudo"; }
need_lab() { [[ -e $LAB_DIR/lab.id ]] || die "no lab in $LAB_DIR: start one with 'lab start'"; }

# Two commands that change the lab never run at once. The lock file lives in the cache folder,
# because the lab's own folder comes and goes.
lock_lab() {
  mkdir -p "$LAB_CACHE"
  exec 9>"$LAB_CACHE/$LAB_NAME.lock"
  flock -w 600 9 || die "another lab command has been running for 10 minutes; look at $LAB_CACHE/$LAB_NAME.lock with fuser"
}
