# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# A machine of the lab: one process tree with its own network, mount, UTS, IPC and PID namespace.
# Its first process is the machine: end that one and the kernel ends everything inside at once, as
# a power cut does. Nothing of a machine is named outside its folder, so nothing can be left behind.

machine_dir() { echo "$LAB_DIR/machines/$1"; }
machine_pid() { noted_pid "$(machine_dir "$1")/init.pid"; }
machine_is_on() { machine_pid "$1" >/dev/null; }
machines() { [[ ! -d $LAB_DIR/machines ]] || ls "$LAB_DIR/machines"; }
hosts() { machines | grep '^hv' | sort -V || true; }
need_machine() { [[ -n ${1:-} && -d $(machine_dir "$1") ]] || die "no machine '${1:-}'; there are: $(machines | tr '\n' ' ')"; }
need_host() { need_machine "${1:-}"; [[ $1 == hv* ]] || die "'$1' is not a hypervisor host"; }

# machine_define NAME ADDRESS: what stays over a power cycle.
machine_define() {
  local dir
  dir=$(machine_dir "$1")
  mkdir -p "$dir"/{run,tmp} "$LAB_DIR/log/$1"
  echo "$2" >"$dir/address"
  echo "$1" >"$dir/hostname"
  [[ -s $dir/uuid ]] || cat /proc/sys/kernel/random/uuid >"$dir/uuid"
  tr -d - <"$dir/uuid" >"$dir/machine-id"
  {
    echo "127.0.0.1 localhost"
    echo "$LAB_GATEWAY gateway"
    echo "$LAB_CONTROL ctl"
    local i
    for ((i = 1; i <= LAB_MAX_HOSTS; i++)); do echo "$LAB_NET.$i hv$i"; done
  } >"$dir/hosts"
}

machine_on() { # NAME
  local name=$1 dir outer pid
  dir=$(machine_dir "$name")
  machine_is_on "$name" && return 0
  # what a reboot forgets
  rm -rf "$dir/run" "$dir/tmp" "$dir/plugged"
  mkdir -p "$dir"/run/lab "$dir/tmp"
  cat /proc/sys/kernel/random/uuid >"$dir/boot-id"
  env -i PATH="$PATH" LANG=C.UTF-8 LAB_DIR="$LAB_DIR" LAB_SRC="$LAB_SRC" MACHINE="$name" \
    setsid unshare --fork --kill-child --pid --mount-proc --mount --uts --ipc --net \
    "$LAB_SRC/inside/machine" init </dev/null >>"$LAB_DIR/log/$name/init.log" 2>&1 8>&- 9>&- &
  outer=$!
  note_process "$dir/outer.pid" "$outer" || die "$name: no new namespaces; see $LAB_DIR/log/$name/init.log"
  wait_for "the first process of $name" 60 grep -q . "/proc/$outer/task/$outer/children" || return 1
  pid=$(tr -d ' ' <"/proc/$outer/task/$outer/children")
  note_process "$dir/init.pid" "$pid"
  plug "$name" "$pid" "$(cat "$dir/address")"
  touch "$dir/plugged"
}

# machine_off NAME: first the cable, so that nobody hears a farewell, then the power.
machine_off() {
  local name=$1 dir
  dir=$(machine_dir "$name")
  unplug "$name"
  end_process "$dir/init.pid" KILL
  end_process "$dir/outer.pid" KILL
}

# machine_exec NAME COMMAND...: runs COMMAND inside.
machine_exec() {
  local name=$1 pid
  shift
  pid=$(machine_pid "$name") || die "$name is off"
  nsenter -t "$pid" --mount --uts --ipc --net --pid -- \
    env -i PATH="$PATH" LANG=C.UTF-8 TERM="${TERM:-dumb}" HOME="$(machine_dir "$name")/tmp" TMPDIR="$(machine_dir "$name")/tmp" \
    LAB_DIR="$LAB_DIR" LAB_SRC="$LAB_SRC" MACHINE="$name" "$@"
}
machine_do() { # NAME VERB...: the machine's own commands (start, signal, is-running, ...)
  local name=$1
  shift
  machine_exec "$name" "$LAB_SRC/inside/machine" "$@" 8>&- 9>&-
}
