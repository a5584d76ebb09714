# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# The control plane from the outside: bring it up, give it a catalogue, add nova-compute to hosts.

cloud() { "$PYTHON" "$LAB_SRC/python/cloud.py" --auth "http://$LAB_CONTROL:5000/v3" --password "$ADMIN_PASSWORD" "$@"; }

# Making the schemas takes half a minute of two cores. They depend on nothing but the packages and
# the settings named here, so the first start leaves them at rest in the cache for the next one.
seed_file() {
  local versions
  versions=$(dpkg-query -W -f '${Package} ${Version}\n' python3-keystone python3-placement python3-glance python3-neutron python3-nova mariadb-server-core)
  echo "$LAB_CACHE/seed-$({ echo "$versions $LAB_NET $ADMIN_PASSWORD $SERVICE_PASSWORD"; cat "$LAB_SRC/inside/control.sh" "$LAB_SRC/python/cloud.py"; } | sha256sum | cut -c1-16).tar.gz"
}

control_define() {
  machine_define ctl "$LAB_CONTROL"
  config_all
  if [[ -e $(seed_file) && ! -d $(machine_dir ctl)/mysql ]]; then
    tar -xzf "$(seed_file)" -C "$(machine_dir ctl)" || die "the cached database $(seed_file) is damaged: remove it and start again"
  fi
}

control_seed() {
  local seed dir
  seed=$(seed_file)
  dir=$(machine_dir ctl)
  [[ ! -e $seed ]] || return 0
  machine_do ctl role seed || die "the control plane's databases could not be made"
  machine_do ctl start keystone
  cloud catalogue --service-password "$SERVICE_PASSWORD" --address "$LAB_CONTROL"
  machine_do ctl role rest_database
  rm -f "$LAB_CACHE"/seed-*.tar.gz
  tar -cf - -C "$dir" mysql | gzip -1 >"$seed.part"
  mv "$seed.part" "$seed"
  machine_do ctl start mariadb
}

control_up() {
  machine_on ctl
  stage "control plane: databases" control_seed
  machine_do ctl role start_services
  stage "control plane: services" control_ready
}
control_ready() { cloud prepare --folder "$LAB_DIR"; }

compute_define() { config_nova_compute "$1" >"$LAB_DIR/config/nova-compute-$1.conf"; }
compute_on() { machine_do "$1" start nova-compute; }
