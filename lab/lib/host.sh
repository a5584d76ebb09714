# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# A hypervisor host from the outside: its settings, its power, the questions others ask about it.

libvirt_tcp() { echo "qemu+tcp://$(host_address "$1")/system"; }
libvirt_unix() { echo "qemu+unix:///system?socket=$(machine_dir "$1")/run/libvirt/libvirt-sock"; }
# First over the socket file: a connection attempt to an address that is not there yet costs seconds.
libvirt_answers() { virsh -c "$(libvirt_unix "$1")" version && virsh -c "$(libvirt_tcp "$1")" version; }

host_define() { # NAME
  local name=$1 dir address
  dir=$(machine_dir "$name")
  address=$(host_address "$name")
  machine_define "$name" "$address"
  mkdir -p "$dir/files/etc/libvirt" "$LAB_DIR/instances"
  host_accounts "$dir"
  # Equal host UUIDs would make libvirt refuse a migration as one "to itself".
  cat >"$dir/files/etc/libvirt/libvirtd.conf" <<EOC
listen_tls = 0
listen_tcp = 1
listen_addr = "$address"
auth_tcp = "none"
auth_unix_rw = "none"
unix_sock_ro_perms = "0777"
unix_sock_rw_perms = "0700"
mdns_adv = 0
host_uuid = "$(cat "$dir/uuid")"
EOC
  cat >"$dir/files/etc/libvirt/qemu.conf" <<EOC
security_driver = "none"
user = "root"
group = "root"
cgroup_controllers = []
namespaces = []
remember_owner = 0
migration_host = "$address"
EOC
}

# host_accounts DIR: libvirt insists on the account it was built with, which belongs to a package
# that also brings system services. Only the lab's hosts see it.
host_accounts() {
  { grep -v '^libvirt-qemu:' /etc/passwd; echo 'libvirt-qemu:x:64055:64055:QEMU in the lab:/var/lib/libvirt:/usr/sbin/nologin'; } >"$1/passwd"
  { grep -v '^libvirt-qemu:' /etc/group; echo 'libvirt-qemu:x:64055:'; } >"$1/group"
}

# host_on NAME [--no-wait]
host_on() {
  machine_on "$1"
  [[ ${2:-} != --no-wait ]] || return 0
  wait_for "libvirtd on $1" 180 host_settled "$1" || die "$1 did not come up; see $LAB_DIR/log/$1"
  machine_is_on "$1" || die "$1 went off while it booted; see $LAB_DIR/log/$1/init.log"
}
host_settled() { libvirt_answers "$1" || ! machine_is_on "$1"; }
host_off() { machine_off "$1"; }
