#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs "$@" inside a private libvirt host: own process, network, mount and host name namespace, own configuration.
# Everything in it ends with it. HOST_DIR is an existing empty directory for configuration and logs; needs root.
set -eu
if [ "${INSIDE_HOST:-}" != 1 ]; then
    exec env INSIDE_HOST=1 unshare --net --mount --uts --pid --fork --kill-child --mount-proc "$0" "$@"
fi
mount --make-rprivate /
hostname real-host
ip link set lo up
mkdir -p /var/lib/libvirt /var/log/libvirt /var/cache/libvirt "$HOST_DIR/etc" "$HOST_DIR/log"
cat >"$HOST_DIR/etc/libvirtd.conf" <<C
listen_tls = 0
listen_tcp = 1
listen_addr = "127.0.0.1"
auth_tcp = "none"
auth_unix_rw = "none"
auth_unix_ro = "none"
log_outputs = "2:file:$HOST_DIR/log/libvirtd.log"
host_uuid = "$(cat /proc/sys/kernel/random/uuid)"
C
cat >"$HOST_DIR/etc/qemu.conf" <<C
security_driver = "none"
user = "root"
group = "root"
cgroup_controllers = []
stdio_handler = "file"
C
# The QEMU driver insists on its distribution user even when it is told to use another; packages may not have made it.
cp /etc/passwd "$HOST_DIR/passwd"; cp /etc/group "$HOST_DIR/group"
grep -q '^libvirt-qemu:' "$HOST_DIR/passwd" || echo 'libvirt-qemu:x:64055:64055::/:/usr/sbin/nologin' >>"$HOST_DIR/passwd"
for name in libvirt-qemu kvm libvirt; do
    grep -q "^$name:" "$HOST_DIR/group" || echo "$name:x:64055:" >>"$HOST_DIR/group"
done
mount --bind "$HOST_DIR/passwd" /etc/passwd
mount --bind "$HOST_DIR/group" /etc/group
mount --bind "$HOST_DIR/etc" /etc/libvirt
mount --bind "$HOST_DIR/log" /var/log/libvirt
for place in /run /var/lib/libvirt /var/cache/libvirt; do mount -t tmpfs tmpfs "$place"; done
mkdir -p /run/libvirt /var/lib/libvirt/qemu
"$@"
