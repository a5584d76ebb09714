# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# The lab's wires: one bridge, one link per machine. No route out, no firewall rule, no forwarding.
# Promises: refuses to start where a name or an address range is taken.

link_of() { echo "$LAB_NAME-$1"; } # 15 characters at most, checked in network_check

network_check() {
  local taken
  ((${#LAB_NAME} <= 10)) || die "COBALTCORE_LAB_NAME '$LAB_NAME' is too long: 10 characters at most (it becomes link names)"
  [[ $LAB_NET =~ ^([0-9]{1,3}\.){2}[0-9]{1,3}$ ]] || die "COBALTCORE_LAB_NET '$LAB_NET' must be the first three numbers of a /24, like 10.99.0"
  ((${#LAB_DIR} <= 60)) || die "COBALTCORE_LAB_DIR is too long for unix sockets: 60 characters at most"
  if ip link show "$LAB_BRIDGE" >/dev/null 2>&1; then
    die "a link named $LAB_BRIDGE is already there and not ours: set COBALTCORE_LAB_NAME to another name"
  fi
  taken=$(ip -4 -o addr show | awk '{print $4}' | grep -F "$LAB_NET." | paste -sd ' ' || true)
  [[ -z $taken ]] || die "$LAB_NET.0/24 is in use here ($taken): set COBALTCORE_LAB_NET to another range"
  taken=$(ip -4 route show "$LAB_NET.0/24" | paste -sd ' ')
  [[ -z $taken ]] || die "there is a route to $LAB_NET.0/24 ($taken): set COBALTCORE_LAB_NET to another range"
}

network_up() {
  ip link add "$LAB_BRIDGE" type bridge
  ip addr add "$LAB_GATEWAY/24" dev "$LAB_BRIDGE"
  ip link set "$LAB_BRIDGE" up
}
network_down() {
  local link
  # veth ends vanish with their namespace; what is left belongs to a machine that never came up
  for link in $(ip -o link show master "$LAB_BRIDGE" 2>/dev/null | awk -F'[:@ ]+' '{print $2}'); do
    ip link del "$link" 2>/dev/null || true
  done
  ip link del "$LAB_BRIDGE" 2>/dev/null || true
}

# plug MACHINE PID ADDRESS: gives the machine's network namespace its interface e0. Its hardware
# address follows from its address: a host that comes back with another one would be unreachable
# until its neighbours have forgotten the old one, which no real host does to them.
plug() {
  local link mac
  link=$(link_of "$1")
  ip link del "$link" 2>/dev/null || true
  mac=$(awk -F. '{ printf "02:cc:%02x:%02x:%02x:%02x", $1, $2, $3, $4 }' <<<"$3")
  ip link add "$link" type veth peer name e0 address "$mac" netns "$2"
  ip link set "$link" master "$LAB_BRIDGE" up
  nsenter -t "$2" -n sh -c "ip addr add $3/24 dev e0 && ip link set e0 up && ip link set lo up"
}
unplug() { ip link del "$(link_of "$1")" 2>/dev/null || true; }
