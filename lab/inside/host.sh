# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# A hypervisor host from the inside: libvirtd, QEMU, Open vSwitch in user space, shared instance
# storage, and nova-compute once there is a control plane.
# shellcheck disable=SC2154 # DIR, LOG, ADDRESS, PYTHON come from machine

INSTANCES=/var/lib/nova/instances

role_boot() {
  private /etc/passwd "$DIR/passwd"
  private /etc/group "$DIR/group"
  private /etc/libvirt
  private /var/lib/libvirt
  private /var/cache/libvirt
  private /var/log/libvirt
  private /etc/openvswitch
  private /var/lib/openvswitch
  private /var/log/openvswitch
  private /var/lib/nova
  private /var/log/nova
  mkdir -p /run/libvirt /run/openvswitch /var/lib/libvirt/qemu /var/lib/nova/lock "$INSTANCES"
  "$LAB_SRC/inside/machine" start shared-storage ovsdb virtlogd remote-shell
  until mountpoint -q "$INSTANCES"; do sleep 0.05; done
  # what one host locks is locked for all of them, as on storage that is really shared: FUSE keeps locks to itself
  mkdir -p "$LAB_DIR/instances/locks"
  mount --bind "$LAB_DIR/instances/locks" "$INSTANCES/locks"
  "$LAB_SRC/inside/machine" start ovs libvirtd
  [[ ! -e $LAB_DIR/config/node-exporter ]] || "$LAB_SRC/inside/machine" start node-exporter
  [[ ! -e $LAB_DIR/config/nova-compute-$MACHINE.conf ]] || "$LAB_SRC/inside/machine" start nova-compute
}

# libvirt calls storage shared by the type of its file system. FUSE reports the subtype given here,
# and a name that libvirt knows as a cluster file system passes its migration check.
service_shared-storage() {
  exec bindfs -f -o subtype=glusterfs,fsname=lab-instances "$LAB_DIR/instances" "$INSTANCES"
}
service_virtlogd() { exec virtlogd; }
service_libvirtd() {
  until [[ -S /run/libvirt/virtlogd-sock ]]; do sleep 0.05; done
  exec libvirtd --listen
}
service_ovsdb() {
  local db=/etc/openvswitch/conf.db
  [[ -e $db ]] || ovsdb-tool create "$db" /usr/share/openvswitch/vswitch.ovsschema
  exec ovsdb-server "$db" --remote=punix:/run/openvswitch/db.sock "--remote=ptcp:6640:$ADDRESS" \
    --remote=db:Open_vSwitch,Open_vSwitch,manager_options --pidfile=/run/openvswitch/ovsdb-server.pid \
    --unixctl=/run/openvswitch/ovsdb-server.ctl
}
service_ovs() {
  until [[ -S /run/openvswitch/db.sock ]]; do sleep 0.05; done
  ovs-vsctl --no-wait --may-exist add-br br-int -- set bridge br-int datapath_type=netdev fail-mode=secure \
    -- set open_vswitch . "external-ids:system-id=$(cat "$DIR/uuid")" "external-ids:hostname=$MACHINE" "external-ids:rundir=/run/openvswitch"
  exec ovs-vswitchd unix:/run/openvswitch/db.sock --pidfile=/run/openvswitch/ovs-vswitchd.pid
}
# Nova reaches the other host of a cold migration by "ssh", which is the one in this folder.
service_nova-compute() {
  until [[ -S /run/libvirt/libvirt-sock ]]; do sleep 0.05; done
  PATH=$LAB_SRC/inside:$PATH exec "$PYTHON" "$LAB_SRC/python/console.py" nova.cmd.compute nova-compute \
    --config-file "$LAB_DIR/config/nova-compute-$MACHINE.conf"
}
service_remote-shell() { exec "$PYTHON" "$LAB_SRC/python/remote_shell.py" serve "$ADDRESS"; }
service_node-exporter() { exec prometheus-node-exporter "--web.listen-address=$ADDRESS:9100"; }

# A disk that is slow rather than dead: the storage stands still for a while, answers for a moment,
# and stands still again. (No kernel has to help with that.)
role_slow_disk() { # MILLISECONDS
  if "$LAB_SRC/inside/machine" is-running slow-disk; then "$LAB_SRC/inside/machine" signal KILL slow-disk; fi
  rm -f /run/lab/slow-disk.pid
  "$LAB_SRC/inside/machine" signal CONT shared-storage
  (($1 == 0)) || { echo "$1" >/run/lab/slow-disk.ms; "$LAB_SRC/inside/machine" start slow-disk; }
}
service_slow-disk() {
  local pause storage
  pause=$(awk '{printf "%.3f", $1 / 1000}' /run/lab/slow-disk.ms)
  storage=$(cat /run/lab/shared-storage.pid)
  while kill -STOP "$storage"; do
    sleep "$pause"
    kill -CONT "$storage"
    sleep 0.02
  done
}
