# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# One run for automation: install, start once, run every given command against the lab, always
# clean up, prove that nothing is left, and show how long each stage took.

lab_ci() {
  local count=3 rc=0 command
  if [[ ${1:-} == --hosts ]]; then
    count=${2:?--hosts needs a number}
    shift 2
  fi
  (($#)) || die "ci: give at least one command to run, each as one argument"
  need_root
  LAB_STAGES=$(mktemp)
  trap ci_end EXIT
  trap 'exit 130' INT TERM
  CI_BEGIN=$EPOCHREALTIME
  ci_step install packages_install || exit 1
  # a lab that an interrupted run left is not the one to measure
  ci_step "clear" lab_stop || exit 1
  (lab_start --hosts "$count") || exit 1
  export COBALTCORE_REAL=1 COBALTCORE_LAB_DIR=$LAB_DIR COBALTCORE_LAB_NAME=$LAB_NAME COBALTCORE_LAB_NET=$LAB_NET COBALTCORE_LAB_CACHE=$LAB_CACHE
  for command in "$@"; do
    say "ci: $command"
    stage "$command" env -u LAB_STAGES bash -c "$command" || { rc=1; ci_keep_logs; }
  done
  exit "$rc"
}
# Each step in a process of its own: an error inside ends the step, not the clean-up.
ci_step() { # NAME FUNCTION...
  local name=$1 begin=$EPOCHREALTIME rc=0
  shift
  ( "$@" ) || rc=$?
  note_stage "$name" "$begin" "$rc" 2>/dev/null
  return "$rc"
}
ci_keep_logs() { (lab_logs --save "${COBALTCORE_LAB_LOGS:-$PWD/target}/lab-logs-$(date +%H%M%S).tar.gz") || true; }

ci_end() {
  local rc=$? left
  trap - EXIT
  trap '' INT TERM
  ci_step stop lab_stop || rc=1
  left=$(lasting_leftovers)
  note_stage total "$CI_BEGIN" "$rc" 2>/dev/null
  echo
  echo "STAGE                                                        SECONDS  RESULT"
  awk -F'\t' '{ printf "%-60s %7s  %s\n", substr($1, 1, 60), $2, $3 == 0 ? "ok" : "FAILED" }' "$LAB_STAGES"
  rm -f "$LAB_STAGES"
  if [[ -n $left ]]; then
    printf 'LEFT BEHIND\n%s\n' "$left"
    rc=1
  else
    echo "nothing left behind: no namespace, link, address, mount, process or file of the lab"
  fi
  exit "$rc"
}
