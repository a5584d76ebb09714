# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# One BMC per host: a sushy-tools Redfish server on an address of its own, whose power button is
# real. It runs beside the hosts, not inside them, so it answers while its host is off or cut off.

bmc_url() { echo "http://$(bmc_address "$1"):$BMC_PORT"; }
bmc_answers() { curl -sf -m 2 -o /dev/null "$(bmc_url "$1")/redfish/v1/"; }

bmc_on() { # HOST
  local host=$1 dir=$LAB_DIR/bmc/$1 address
  address=$(bmc_address "$host")
  mkdir -p "$dir" "$LAB_DIR/run" "$LAB_DIR/log/bmc"
  if noted_pid "$LAB_DIR/run/bmc-$host.pid" >/dev/null; then return; fi
  ip addr add "$address/24" dev "$LAB_BRIDGE" 2>/dev/null || true
  spawn "$LAB_DIR/run/bmc-$host.pid" "$LAB_DIR/log/bmc/$host.log" \
    env -i PATH="$PATH" HOME="$dir" TMPDIR="$dir" LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1 \
    COBALTCORE_LAB_NAME="$LAB_NAME" COBALTCORE_LAB_DIR="$LAB_DIR" COBALTCORE_LAB_NET="$LAB_NET" COBALTCORE_LAB_CACHE="$LAB_CACHE" \
    BMC_PASSWORD="$BMC_PASSWORD" "$REDFISH_VENV/bin/python" "$LAB_SRC/python/redfish.py" \
    --lab "$LAB_SRC/lab" --host "$host" --machine "$(machine_dir "$host")" --state "$dir" \
    --listen "$address" --port "$BMC_PORT" --user "$BMC_USER"
}
bmc_off() { end_process "$LAB_DIR/run/bmc-$1.pid"; }
