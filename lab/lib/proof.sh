# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# The proof that a stopped lab left nothing: looked up in the kernel, not in the lab's own notes.

# leftovers: one line per thing that a stopped lab must not leave; empty output is the proof.
leftovers() {
  local pid link
  for link in $(ip -o link show | awk -F'[:@ ]+' '{print $2}' | grep "^$LAB_NAME-" || true); do echo "link: $link"; done
  ip -4 -o addr show | grep -F " $LAB_NET." | sed 's/^/address: /' || true
  [[ ! -e $LAB_DIR ]] || echo "folder: $LAB_DIR"
  grep -F "$LAB_DIR" /proc/self/mountinfo | sed 's/^/mount: /' || true
  ip netns list 2>/dev/null | grep "^$LAB_NAME" | sed 's/^/namespace: /' || true
  # a process of a lab machine lives among mounts from the lab's folder, whatever it calls itself;
  # its network, PID and UTS namespaces live exactly as long as such a process
  for pid in $(grep -lsF "$LAB_DIR/machines" /proc/[0-9]*/mountinfo | cut -d/ -f3); do
    echo "process: $pid $(command_of "$pid")"
  done
  for pid in $(grep -lsaF "COBALTCORE_LAB_DIR=$LAB_DIR" /proc/[0-9]*/environ | cut -d/ -f3); do
    [[ $(command_of "$pid") != *redfish.py* ]] || echo "process: $pid redfish"
  done
}

# What is still there after a while: a command that ran inside a machine may end a moment after it.
lasting_leftovers() {
  wait_for "everything to be gone" 30 nothing_left 2>/dev/null || leftovers
}
nothing_left() { [[ -z $(leftovers) ]]; }

# The command line of a process, or nothing if it ended meanwhile.
command_of() { { tr '\0' ' ' <"/proc/$1/cmdline"; } 2>/dev/null || true; }

# What the lab's programs would write to if they were not in their own mount namespace.
OUTSIDE=(/etc/libvirt /etc/openvswitch /etc/mysql /etc/rabbitmq /etc/nova /etc/neutron /etc/glance /etc/hosts /etc/hostname
  /etc/passwd /etc/group /etc/machine-id /etc/resolv.conf
  /var/lib/libvirt /var/lib/openvswitch /var/lib/mysql /var/lib/rabbitmq /var/lib/nova /var/lib/neutron /var/lib/glance
  /var/cache/libvirt /var/log/libvirt /var/log/openvswitch /var/log/rabbitmq /var/log/nova /var/log/neutron /var/log/glance
  /run/libvirt /run/openvswitch /run/mysqld /run/netns)
outside_fingerprint() { find "${OUTSIDE[@]}" -xdev -printf '%p %s %T@\n' 2>/dev/null | LC_ALL=C sort || true; }
outside_changes() {
  local changes
  [[ -e $LAB_DIR/outside ]] || return 0
  changes=$(outside_fingerprint | LC_ALL=C comm -3 "$LAB_DIR/outside" - | head -n 20)
  [[ -z $changes ]] || warn "files outside the lab changed while it ran (by it or by somebody else):
$changes"
}
