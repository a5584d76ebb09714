# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Everything that can be broken, and its repair. Each verb acts on one machine and waits until the
# fault is in place; a repeated verb changes nothing.

# Faults on different machines may overlap; start and stop of the lab exclude them all.
fault_begin() { # MACHINE
  need_root
  need_lab
  exec 9>"$LAB_CACHE/$LAB_NAME.lock"
  flock -s -w 600 9 || die "the lab is being started or stopped"
  exec 8>"$LAB_DIR/run/$1.lock"
  flock -w 120 8 || die "another command has been busy with $1 for 2 minutes"
}

lab_kill() { need_lab; need_host "${1:-}"; fault_begin "$1"; host_off "$1"; say "$1 is off"; }
lab_boot() { need_lab; need_host "${1:-}"; fault_begin "$1"; host_on "$@"; say "$1 is on"; }

lab_cut() { need_lab; need_machine "${1:-}"; fault_begin "$1"; ip link set "$(link_of "$1")" down; say "$1 is cut off"; }
lab_mend() { need_lab; need_machine "${1:-}"; fault_begin "$1"; ip link set "$(link_of "$1")" up; say "$1 is back on the network"; }

lab_freeze() { process_fault STOP "$@"; say "$2 on $1 is frozen"; }
lab_thaw() { process_fault CONT "$@"; say "$2 on $1 runs again"; }
lab_kill_process() { process_fault KILL "$@"; say "$2 on $1 is killed"; }
lab_start_process() {
  need_lab
  need_machine "${1:-}"
  [[ -n ${2:-} ]] || die "which process? 'lab processes $1' lists them"
  fault_begin "$1"
  machine_do "$1" start "$2"
  say "$2 on $1 is started"
}
lab_processes() { need_lab; need_machine "${1:-}"; machine_do "$1" list; }
process_fault() { # SIGNAL MACHINE PROCESS
  need_lab
  # a BMC is a process beside the machines
  if [[ ${2:-} == bmc ]]; then
    local pid
    fault_begin "bmc-${3:-}"
    pid=$(noted_pid "$LAB_DIR/run/bmc-${3:-}.pid") || die "no BMC of '${3:-}' runs"
    kill "-$1" "$pid"
    return
  fi
  need_machine "${2:-}"
  [[ -n ${3:-} ]] || die "which process? 'lab processes $2' lists them"
  fault_begin "$2"
  machine_do "$2" signal "$1" "$3"
}

# lab_slow_disk HOST MILLISECONDS: the storage of one host answers in bursts with pauses of that length.
lab_slow_disk() {
  need_lab
  need_host "${1:-}"
  [[ ${2:-} =~ ^[0-9]+$ ]] && ((10#$2 <= 60000)) || die "slow-disk takes milliseconds from 0 (healthy) to 60000"
  fault_begin "$1"
  machine_do "$1" role slow_disk "$2"
  say "the disk of $1 pauses $2 ms"
}

APIS=(keystone placement glance neutron nova)
# lab_slow_api SERVICE MILLISECONDS and lab_fail_api SERVICE STATUS; 0 ends the fault.
lab_slow_api() { api_fault "${1:-}" "${2:-}" 0; say "$1 answers ${2} ms late"; }
lab_fail_api() {
  [[ ${2:-} == 0 || ${2:-} =~ ^[45][0-9][0-9]$ ]] || die "fail-api takes a status from 400 to 599, or 0 to end the fault"
  api_fault "${1:-}" 0 "$2"
  say "$1 answers with ${2/#0/what it should}"
}
api_fault() { # SERVICE MILLISECONDS STATUS
  need_root
  need_lab
  [[ " ${APIS[*]} " == *" $1 "* ]] || die "no API '$1'; there are: ${APIS[*]}"
  [[ $2 =~ ^[0-9]+$ ]] && ((10#$2 <= 60000)) || die "slow-api takes milliseconds from 0 (healthy) to 60000"
  if [[ $2 == 0 && $3 == 0 ]]; then
    rm -f "$LAB_DIR/faults/api-$1"
  else
    echo "$2 $3" >"$LAB_DIR/faults/.new"
    mv "$LAB_DIR/faults/.new" "$LAB_DIR/faults/api-$1"
  fi
}

# lab_heal: the end of every fault, for suites that share a lab.
lab_heal() {
  local machine process state
  need_root
  need_lab
  rm -f "$LAB_DIR"/faults/api-*
  for machine in $(machines); do
    if ! machine_is_on "$machine"; then
      (lab_boot "$machine")
      continue
    fi
    ip link set "$(link_of "$machine")" up
    if [[ $machine == hv* && -e $(machine_dir "$machine")/run/lab/slow-disk.pid ]]; then machine_do "$machine" role slow_disk 0; fi
    while read -r process state; do
      case $process/$state in
        # a guest may have been ended meanwhile
        guest/*/frozen) (lab_thaw "$machine" "$process") || true ;;
        */frozen) (lab_thaw "$machine" "$process") ;;
        guest/*/dead) ;; # whether a dead guest comes back is Nova's business
        */dead) (lab_start_process "$machine" "$process") ;;
      esac
    done < <(machine_do "$machine" list)
  done
}
lab_exec() { need_root; need_lab; need_machine "${1:-}"; machine_exec "$@"; }
