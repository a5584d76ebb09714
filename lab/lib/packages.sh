# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the lab needs from outside: Debian packages and one Python environment for the Redfish server.
# Promises: no service is started or enabled by the installation, and nothing is ever removed. A qemu-utils
# from elsewhere that forbids the distribution's qemu-system-x86 is exchanged for the distribution's own.

# Libraries rather than service packages wherever Debian splits them: fewer packages, and nothing
# that wants to come up on this machine. Only rabbitmq-server and openvswitch-switch bring units.
LAB_PACKAGES=(
  iproute2 util-linux procps bindfs curl
  libvirt-daemon libvirt-daemon-driver-qemu libvirt-clients
  qemu-system-x86 qemu-utils genisoimage
  openvswitch-switch
  mariadb-server-core mariadb-client-core rabbitmq-server
  python3-keystone python3-placement glance-common neutron-common nova-common
  python3-libvirt python3-pymysql python3-openstackclient python3-venv
  uwsgi-core uwsgi-plugin-python3
)
PROMETHEUS_PACKAGES=(prometheus prometheus-node-exporter)
SUSHY_TOOLS=sushy-tools==2.2.0

packages_install() {
  local packages=("${LAB_PACKAGES[@]}") missing
  if [[ ${1:-} == --prometheus ]]; then packages+=("${PROMETHEUS_PACKAGES[@]}"); fi
  need_root
  lock_lab
  [[ -r /etc/debian_version ]] || die "the lab is made from Debian 12 packages; this is not Debian"
  mapfile -t missing < <(packages_missing "${packages[@]}")
  if ((${#missing[@]})); then
    say "installing ${#missing[@]} packages and what they depend on (log: $LAB_CACHE/install.log)"
    without_services apt_install "${missing[@]}" || {
      tail -n 30 "$LAB_CACHE/install.log" >&2
      die "apt-get could not install the packages"
    }
  fi
  redfish_environment
  say "installed"
}

packages_missing() { # PACKAGE...: prints those that are not installed
  local package present
  # shellcheck disable=SC2016 # dpkg-query's own variables
  present=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "$@" 2>/dev/null || true)
  for package in "$@"; do
    grep -qx "$package installed" <<<"$present" || echo "$package"
  done
}

apt_install() {
  export DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1
  {
    apt-get update -q -o Acquire::Retries=5
    # apache2- : OpenStack packages offer it as a web server, the lab never wants it.
    # shellcheck disable=SC2046 # one word or none
    apt-get install -y -q --no-install-recommends --allow-downgrades -o Dpkg::Options::=--force-confold \
      -o Dpkg::Options::=--force-unsafe-io -o DPkg::Lock::Timeout=300 -o Acquire::Retries=5 \
      "$@" $(qemu_utils_to_exchange) apache2-
  } >"$LAB_CACHE/install.log" 2>&1
}

# The distribution's qemu-utils, if the one that is installed is newer (from backports, say): that one
# refuses to stand beside the distribution's qemu-system-x86.
qemu_utils_to_exchange() {
  local present offered
  # shellcheck disable=SC2016 # dpkg-query's own variables
  present=$(dpkg-query -W -f '${Version}' qemu-utils 2>/dev/null) || return 0
  offered=$(apt-cache policy qemu-system-x86 | awk '$1 == "Candidate:" { print $2 }')
  if dpkg --compare-versions "$present" gt "$offered"; then echo "qemu-utils=$offered"; fi
}

# without_services COMMAND...: invoke-rc.d and deb-systemd-invoke ask policy-rc.d before they start
# anything. An existing policy is covered for our process tree alone, by a bind mount in a private
# mount namespace; a missing one is created and removed again. What the installation enabled for the
# next boot is switched back to off.
without_services() {
  local policy=/usr/sbin/policy-rc.d before after created='' rc=0
  before=$(boot_links)
  if [[ ! -e $policy ]]; then
    created=$policy
    : >"$policy"
    chmod 755 "$policy"
  fi
  # shellcheck disable=SC2064 # the path as it is now
  trap "[[ -z '$created' ]] || rm -f '$created'" EXIT
  printf '#!/bin/sh\nexit 101\n' >"$LAB_CACHE/policy-rc.d"
  chmod 755 "$LAB_CACHE/policy-rc.d"
  export -f apt_install qemu_utils_to_exchange
  export LAB_CACHE
  # shellcheck disable=SC2016 # the inner shell's own arguments
  unshare --mount -- bash -c 'set -e; mount --bind "$1" "$2"; shift 2; "$@"' \
    without_services "$LAB_CACHE/policy-rc.d" "$policy" "$@" || rc=$?
  trap - EXIT
  [[ -z $created ]] || rm -f "$created"
  rm -f "$LAB_CACHE/policy-rc.d"
  after=$(boot_links)
  LC_ALL=C comm -13 <(echo "$before") <(echo "$after") | disable_boot_links
  return "$rc"
}

# Everything that would come up at the next boot: enabled units and rc links.
boot_links() {
  { find /etc/systemd/system -type l; find /etc/rc[2-5S].d -name 'S*' -type l; } 2>/dev/null | LC_ALL=C sort
}
disable_boot_links() {
  local link name
  while read -r link; do
    name=${link##*/}
    case $link in
      '') ;;
      /etc/systemd/*) rm -f "$link" ;;
      /etc/rc*) update-rc.d "${name#S[0-9][0-9]}" disable >/dev/null 2>&1 || true ;;
    esac
  done
}

# sushy-tools comes from PyPI into its own environment in the cache folder: the system's Python is
# left alone. A marker names the version, so that a changed pin builds a new one.
REDFISH_VENV=$LAB_CACHE/redfish
redfish_environment() {
  local marker=$REDFISH_VENV/installed
  if [[ $(cat "$marker" 2>/dev/null) == "$SUSHY_TOOLS" ]]; then return; fi
  say "installing $SUSHY_TOOLS into $REDFISH_VENV"
  rm -rf "$REDFISH_VENV"
  "$PYTHON" -m venv "$REDFISH_VENV"
  "$REDFISH_VENV/bin/pip" install -q --no-input --retries 10 "$SUSHY_TOOLS" >>"$LAB_CACHE/install.log" 2>&1 ||
    die "pip could not install $SUSHY_TOOLS (see $LAB_CACHE/install.log)"
  echo "$SUSHY_TOOLS" >"$marker"
}
