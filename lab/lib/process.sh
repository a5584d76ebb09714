# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Processes of this machine that the lab started: noted by id and start time, ended by id.
# Promises: a number that meanwhile belongs to somebody else is never signalled.

# stat_fields PID: fills "fields" of the caller with /proc/PID/stat from the state on; the command
# name before it may hold blanks and brackets.
stat_fields() {
  local stat
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  read -r -a fields <<<"${stat##*) }"
}
# The start time makes a process id unique: ids come round again, the pair does not.
start_time() { # PID
  local fields
  stat_fields "$1" && echo "${fields[19]}"
}
note_process() { # FILE PID
  local since
  since=$(start_time "$2") || return 1
  echo "$2 $since" >"$1"
}
# noted_pid FILE: prints the id if that very process is still there.
noted_pid() {
  local pid since fields
  [[ -r $1 ]] && read -r pid since <"$1" && stat_fields "$pid" || return 1
  [[ ${fields[19]} == "$since" && ${fields[0]} != Z ]] && echo "$pid"
}
# end_process FILE [SIGNAL]: ends it and waits until it is gone.
end_process() {
  local pid
  if pid=$(noted_pid "$1"); then
    kill "-${2:-TERM}" "$pid" 2>/dev/null || true
    wait_for "process $pid to end" 60 process_gone "$1" || kill -KILL "$pid" 2>/dev/null || true
  fi
  rm -f "$1"
}
process_gone() { ! noted_pid "$1"; }

# spawn FILE LOG COMMAND...: a process of its own session that keeps no lock and no terminal.
spawn() {
  local file=$1 log=$2
  shift 2
  setsid "$@" </dev/null >>"$log" 2>&1 8>&- 9>&- &
  note_process "$file" $! || die "'$1' did not start; see $log"
}
