# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Start, join and stop of the whole lab.
# Promises: start joins what is running and adds what is asked for; stop may be called at any time,
# any number of times, and leaves nothing behind but the cache.

lab_start() {
  local count=2 control=1 prometheus='' begin=$EPOCHREALTIME
  while (($#)); do
    case $1 in
      --hosts) count=${2:?--hosts needs a number}; shift ;;
      --hosts-only) control='' ;;
      --prometheus) prometheus=1 ;;
      *) die "start: unknown option '$1' (see 'lab --help')" ;;
    esac
    shift
  done
  [[ $count =~ ^[0-9]+$ ]] && ((count >= 1 && count <= LAB_MAX_HOSTS)) || die "--hosts takes a number from 1 to $LAB_MAX_HOSTS"
  need_root
  lock_lab
  start_check "$prometheus"
  start_network
  start_machines "$count" "$control"
  if [[ -n $control ]]; then start_cloud; fi
  if [[ -n $prometheus ]]; then start_prometheus; fi
  wait_for "the BMCs" 180 bmcs_answer || warn "not every BMC answers; see $LAB_DIR/log/bmc"
  describe >"$LAB_DIR/lab.json"
  note_stage "start, ${count} hosts" "$begin" 0
  start_greeting
}

start_check() { # PROMETHEUS
  local packages=("${LAB_PACKAGES[@]}") missing
  [[ -z $1 ]] || packages+=("${PROMETHEUS_PACKAGES[@]}")
  missing=$(packages_missing "${packages[@]}" | tr '\n' ' ')
  [[ -z $missing && -e $REDFISH_VENV/installed ]] || die "not installed: ${missing:-the Redfish server}; run 'lab install${1:+ --prometheus}' first"
  [[ $LAB_VIRT == kvm ]] || warn "guests run in software (TCG) and are slow: no /dev/kvm, or so wished"
  [[ -c /dev/fuse ]] || die "/dev/fuse is missing: the shared instance storage needs FUSE"
  [[ -c /dev/net/tun ]] || die "/dev/net/tun is missing: Open vSwitch in user space needs it"
}

start_network() {
  if [[ -e $LAB_DIR/lab.id ]]; then
    if ip link show "$LAB_BRIDGE" >/dev/null 2>&1 && [[ ! -d $(machine_dir ctl) || -e $LAB_DIR/config/ready ]]; then
      say "joining the lab in $LAB_DIR"
      return
    fi
    say "clearing what an interrupted lab left in $LAB_DIR"
    stop_everything
  fi
  network_check
  if [[ -d $LAB_DIR ]] && [[ -n $(ls -A "$LAB_DIR") ]]; then
    die "$LAB_DIR exists and is not a lab: set COBALTCORE_LAB_DIR to another folder"
  fi
  mkdir -p "$LAB_DIR"/{machines,run,log,instances,faults}
  chmod 755 "$LAB_DIR"
  printf '%s %s %s\n' "$LAB_NAME" "$LAB_NET" "$LAB_SRC" >"$LAB_DIR/lab.id"
  outside_fingerprint >"$LAB_DIR/outside"
  network_up
}

start_machines() { # COUNT CONTROL
  local i host jobs=() job
  if [[ -n $2 && ! -e $LAB_DIR/config/ready ]]; then
    control_define
    machine_on ctl
  fi
  for ((i = 1; i <= $1; i++)); do
    host=hv$i
    [[ -d $(machine_dir "$host") ]] || host_define "$host"
    bmc_on "$host"
    host_on "$host" &
    jobs+=($!)
  done
  for job in "${jobs[@]}"; do wait "$job" || die "a host did not come up; see above, and $LAB_DIR/log"; done
}

start_cloud() {
  local host
  [[ -e $LAB_DIR/config/ready ]] || control_up
  touch "$LAB_DIR/config/ready"
  for host in $(hosts); do
    [[ -e $LAB_DIR/config/nova-compute-$host.conf ]] || compute_define "$host"
    compute_on "$host"
  done
  # shellcheck disable=SC2046
  stage "nova-compute on every host" cloud computes $(hosts)
}

start_prometheus() {
  local host
  [[ -d $(machine_dir ctl) ]] || die "--prometheus lives with the control plane; leave out --hosts-only"
  mkdir -p "$LAB_DIR/prometheus.d"
  touch "$LAB_DIR/config/node-exporter"
  config_prometheus >"$LAB_DIR/config/prometheus.yml"
  for host in $(hosts); do machine_do "$host" start node-exporter; done
  machine_do ctl start prometheus
  wait_for prometheus 60 curl -sf "http://$LAB_CONTROL:9090/-/ready" || die "Prometheus did not start; see $LAB_DIR/log/ctl/prometheus.log"
}

bmcs_answer() { local host; for host in $(hosts); do bmc_answers "$host" || return 1; done; }

start_greeting() {
  local host
  for host in $(hosts); do
    say "$host  $(libvirt_tcp "$host")  redfish $(bmc_url "$host")"
  done
  [[ ! -e $LAB_DIR/clouds.yaml ]] || say "ready: eval \"\$($LAB_SRC/lab env)\"; openstack server list"
}

lab_stop() {
  local left
  need_root
  lock_lab
  if [[ ! -e $LAB_DIR/lab.id ]]; then
    say "no lab in $LAB_DIR, nothing to stop"
    return
  fi
  stop_everything
  left=$(lasting_leftovers)
  [[ -z $left ]] || { printf '%s\n' "$left" >&2; die "the lab is stopped, but something is left"; }
  say "stopped, nothing left"
}

stop_everything() {
  local machine file jobs=()
  for file in "$LAB_DIR"/run/*.pid; do [[ ! -e $file ]] || end_process "$file" & done
  for machine in $(machines); do
    machine_off "$machine" &
    jobs+=($!)
  done
  wait
  network_down
  outside_changes
  rm -rf --one-file-system "$LAB_DIR"
}
