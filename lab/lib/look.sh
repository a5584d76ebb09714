# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Looking at the lab: a page for people, a description for programs, the logs.

lab_look() {
  local machine host
  if [[ ! -e $LAB_DIR/lab.id ]]; then
    echo "no lab in $LAB_DIR"
    return
  fi
  echo "MACHINE   POWER  LINK  ADDRESS        PROCESSES THAT ARE NOT RUNNING"
  for machine in $(machines); do look_machine "$machine"; done
  echo
  echo "GUESTS"
  for host in $(hosts); do look_guests "$host"; done
  [[ -e $LAB_DIR/config/ready ]] || return 0
  echo
  cloud look
}
look_machine() {
  local power=off link=- troubled=''
  if machine_is_on "$1"; then
    power=on
    link=up
    [[ $(cat "/sys/class/net/$(link_of "$1")/flags" 2>/dev/null || echo 0x0) =~ [13579bdf]$ ]] || link='cut'
    troubled=$(machine_do "$1" list | grep -v ' running$' | tr '\n' ';' || true)
  fi
  printf '%-9s %-6s %-5s %-14s %s\n' "$1" "$power" "$link" "$(cat "$(machine_dir "$1")/address")" "$troubled"
}
look_guests() {
  machine_is_on "$1" || return 0
  timeout 10 virsh -c "$(libvirt_unix "$1")" list --all 2>/dev/null | tail -n +3 | sed "/^$/d; s/^/$1 /" || echo "$1  libvirtd does not answer"
}

lab_env() {
  need_lab
  cat <<EOC
export COBALTCORE_LAB_NAME=$LAB_NAME COBALTCORE_LAB_DIR=$LAB_DIR COBALTCORE_LAB_NET=$LAB_NET
export OS_CLIENT_CONFIG_FILE=$LAB_DIR/clouds.yaml OS_CLOUD=lab OS_COMPUTE_API_VERSION=2.90
EOC
}

# describe: everything a program needs to know, as JSON; also kept in $LAB_DIR/lab.json.
describe() {
  local host comma=''
  cat <<EOC
{
  "name": "$LAB_NAME",
  "dir": "$LAB_DIR",
  "command": "$LAB_SRC/lab",
  "logs": "$LAB_DIR/log",
  "gateway": "$LAB_GATEWAY",
  "virtualization": "$LAB_VIRT",
  "control": $([[ -e $LAB_DIR/config/ready ]] && describe_control || echo null),
  "hosts": [
EOC
  for host in $(hosts); do
    printf '%s' "$comma"
    describe_host "$host"
    comma=$',\n'
  done
  printf '\n  ]\n}\n'
}
describe_control() {
  cat <<EOC
{
    "address": "$LAB_CONTROL",
    "auth_url": "http://$LAB_CONTROL:5000/v3",
    "username": "admin",
    "password": "$ADMIN_PASSWORD",
    "clouds_yaml": "$LAB_DIR/clouds.yaml",
    "cloud": "lab",
    "prometheus": $([[ -e $LAB_DIR/config/prometheus.yml ]] && echo "\"http://$LAB_CONTROL:9090\"" || echo null)
  }
EOC
}
describe_host() {
  local dir
  dir=$(machine_dir "$1")
  cat <<EOC
    {
      "name": "$1",
      "address": "$(host_address "$1")",
      "uuid": "$(cat "$dir/uuid")",
      "init": "$dir/init.pid",
      "libvirt_tcp": "$(libvirt_tcp "$1")",
      "libvirt_unix": "$(libvirt_unix "$1")",
      "libvirt_socket": "$dir/run/libvirt/libvirt-sock",
      "libvirt_socket_ro": "$dir/run/libvirt/libvirt-sock-ro",
      "ovsdb_tcp": "tcp:$(host_address "$1"):6640",
      "ovsdb_socket": "$dir/run/openvswitch/db.sock",
      "redfish": {"url": "$(bmc_url "$1")", "system": "/redfish/v1/Systems/$(cat "$dir/uuid")", "username": "$BMC_USER", "password": "$BMC_PASSWORD"}
    }
EOC
}

# lab_logs [MACHINE [SERVICE]] | --save FILE
lab_logs() {
  need_lab
  if [[ ${1:-} == --save ]]; then
    tar -czf "${2:?--save needs a file name}" -C "$LAB_DIR" log config lab.json machines --exclude='machines/ctl/mysql' --exclude='machines/ctl/rabbitmq' \
      --exclude='machines/*/run' --exclude='machines/*/tmp' --exclude='*.sock' --warning=no-file-changed 2>/dev/null || [[ -s $2 ]]
    say "logs and settings are in $2"
  elif [[ -n ${2:-} ]]; then
    cat "$LAB_DIR/log/$1/$2.log"
  else
    find "$LAB_DIR/log${1:+/$1}" -type f -size +0 | sort
  fi
}
