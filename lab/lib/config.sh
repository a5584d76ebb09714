# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# The configuration files of the control plane, each written once per lab into its config folder.
# No service gets a log file here: all write to standard error, which the machine keeps per service.

config_all() {
  local config=$LAB_DIR/config
  mkdir -p "$config/placement" "$config/fernet" "$config/credential" "$LAB_DIR/faults" "$LAB_DIR/images"
  printf '%s' "$ADMIN_PASSWORD" >"$config/admin-password"
  config_keys "$config/fernet"
  config_keys "$config/credential"
  config_rabbitmq >"$config/rabbitmq.conf"
  echo '[].' >"$config/rabbitmq-plugins"
  config_keystone >"$config/keystone.conf"
  config_placement >"$config/placement/placement.conf"
  config_glance >"$config/glance.conf"
  config_neutron >"$config/neutron.conf"
  config_nova >"$config/nova.conf"
  config_paste nova /usr/share/nova-common/api-paste.ini 's/^keystone = /keystone = slow /'
  config_paste neutron /usr/share/neutron-common/api-paste.ini 's/^keystone = /keystone = slow /'
  config_paste glance /usr/share/glance-common/glance-api-paste.ini 's/^pipeline = /pipeline = slow /'
  config_clouds >"$LAB_DIR/clouds.yaml"
}

# Fernet keys are 32 random bytes; "1" signs, "0" is the next one.
config_keys() {
  local key
  chmod 700 "$1"
  for key in 0 1; do
    [[ -s $1/$key ]] || head -c 32 /dev/urandom | base64 | tr '+/' '-_' | tr -d '\n' >"$1/$key"
    chmod 600 "$1/$key"
  done
}

# config_paste SERVICE FILE EDIT: the packaged pipeline with the lab's fault filter in front.
config_paste() {
  {
    sed "$3" "$2"
    printf '\n[filter:slow]\npaste.filter_factory = lab_slow:factory\nservice = %s\n' "$1"
  } >"$LAB_DIR/config/$1-paste.ini"
}

database() { echo "mysql+pymysql://os:$SERVICE_PASSWORD@$LAB_CONTROL/$1"; }
queue() { echo "rabbit://os:$SERVICE_PASSWORD@$LAB_CONTROL:5672/"; }
credentials() { # USER
  cat <<EOC
auth_url = http://$LAB_CONTROL:5000/v3
auth_type = password
project_domain_name = Default
user_domain_name = Default
project_name = service
username = $1
password = $SERVICE_PASSWORD
region_name = RegionOne
EOC
}
token_check() { # USER
  echo "[keystone_authtoken]"
  echo "www_authenticate_uri = http://$LAB_CONTROL:5000"
  credentials "$1"
}

config_rabbitmq() {
  cat <<EOC
listeners.tcp.1 = $LAB_CONTROL:5672
default_user = os
default_pass = $SERVICE_PASSWORD
loopback_users = none
log.file.level = warning
EOC
}

config_keystone() {
  cat <<EOC
[database]
connection = $(database keystone)
[fernet_tokens]
key_repository = $LAB_DIR/config/fernet
[fernet_receipts]
key_repository = $LAB_DIR/config/fernet
[credential]
key_repository = $LAB_DIR/config/credential
[identity]
# the passwords are public: no reason to spend a core on them
password_hash_rounds = 4
[cache]
enabled = true
backend = dogpile.cache.memory
EOC
}

config_placement() {
  cat <<EOC
[api]
auth_strategy = keystone
[placement_database]
connection = $(database placement)
$(token_check placement)
EOC
}

config_glance() {
  cat <<EOC
[DEFAULT]
bind_host = $LAB_CONTROL
bind_port = 9292
workers = 0
enabled_import_methods = []
[database]
connection = $(database glance)
[glance_store]
stores = file
default_store = file
filesystem_store_datadir = $LAB_DIR/images
[paste_deploy]
flavor = keystone
config_file = $LAB_DIR/config/glance-paste.ini
[oslo_concurrency]
lock_path = $LAB_DIR/run
$(token_check glance)
EOC
}

config_neutron() {
  cat <<EOC
[DEFAULT]
bind_host = $LAB_CONTROL
core_plugin = ml2
service_plugins = router,port_forwarding
auth_strategy = keystone
transport_url = $(queue)
api_workers = 0
rpc_workers = 0
state_path = $LAB_DIR/machines/ctl/files/var/lib/neutron
api_paste_config = $LAB_DIR/config/neutron-paste.ini
notify_nova_on_port_status_changes = false
notify_nova_on_port_data_changes = false
[database]
connection = $(database neutron)
[ml2]
type_drivers = local
tenant_network_types = local
mechanism_drivers =
[oslo_concurrency]
lock_path = $LAB_DIR/run
$(token_check neutron)
EOC
}

# What the control plane's Nova and every nova-compute have in common. The short intervals make a
# dead compute visible within seconds; new hosts map themselves into the cell.
config_nova_common() {
  local service
  cat <<EOC
transport_url = $(queue)
report_interval = 3
service_down_time = 12
periodic_fuzzy_delay = 0
log_color = false
[vnc]
enabled = false
[spice]
enabled = false
[api]
auth_strategy = keystone
[oslo_messaging_rabbit]
heartbeat_timeout_threshold = 20
heartbeat_rate = 4
rabbit_retry_interval = 1
rabbit_retry_backoff = 1
rabbit_interval_max = 3
[glance]
api_servers = http://$LAB_CONTROL:9292
$(token_check nova)
EOC
  for service in placement neutron; do
    echo "[$service]"
    credentials "$service"
  done
}

config_nova() {
  cat <<EOC
[api_database]
connection = $(database nova_api)
[database]
connection = $(database nova)
[conductor]
workers = 1
[scheduler]
workers = 1
discover_hosts_in_cells_interval = 5
[wsgi]
api_paste_config = $LAB_DIR/config/nova-paste.ini
[oslo_concurrency]
lock_path = $LAB_DIR/machines/ctl/files/var/lib/nova
[DEFAULT]
state_path = $LAB_DIR/machines/ctl/files/var/lib/nova
my_ip = $LAB_CONTROL
host = ctl
enabled_apis = osapi_compute
osapi_compute_listen = $LAB_CONTROL
osapi_compute_workers = 1
$(config_nova_common)
EOC
}

# On nested KVM, host-model and host-passthrough guests fail to set a model specific register; a plain
# guest CPU works everywhere.
config_nova_compute() { # HOST
  local address
  address=$(host_address "$1")
  cat <<EOC
[libvirt]
virt_type = $LAB_VIRT
cpu_mode = none
connection_uri = qemu:///system
live_migration_uri = qemu+tcp://%s/system
live_migration_inbound_addr = $address
[workarounds]
disable_rootwrap = true
skip_cpu_compare_on_dest = true
[oslo_concurrency]
lock_path = /var/lib/nova/lock
[DEFAULT]
state_path = /var/lib/nova
instances_path = /var/lib/nova/instances
my_ip = $address
host = $1
compute_driver = libvirt.LibvirtDriver
reserved_host_memory_mb = 0
# The lab's guests are too small to hear the power button; nobody has to wait a minute for them.
shutdown_timeout = 3
$(config_nova_common)
EOC
}

config_prometheus() {
  cat <<EOC
global: {scrape_interval: 5s, evaluation_interval: 5s}
scrape_configs:
  - job_name: node-exporter
    static_configs:
$(for host in $(hosts); do echo "      - {targets: ['$(host_address "$host"):9100'], labels: {host: $host}}"; done)
  - job_name: more # suites drop their own targets here
    file_sd_configs: [{files: ['$LAB_DIR/prometheus.d/*.json'], refresh_interval: 2s}]
EOC
}

config_clouds() {
  cat <<EOC
clouds:
  lab:
    region_name: RegionOne
    identity_api_version: 3
    auth:
      auth_url: http://$LAB_CONTROL:5000/v3
      username: admin
      password: $ADMIN_PASSWORD
      project_name: admin
      user_domain_name: Default
      project_domain_name: Default
EOC
}
