# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# The control plane's machine from the inside: database, message queue, and one process per
# OpenStack service, all of them listening on this machine's address only.
# shellcheck disable=SC2154 # DIR, LOG, ADDRESS, PYTHON come from machine

CONFIG=$LAB_DIR/config
MYSQL=$DIR/mysql
SOCKET=/run/mysqld.sock
DATABASES=(keystone placement glance neutron nova_api nova nova_cell0)
API_SERVICES=(keystone placement glance neutron nova-api nova-conductor nova-scheduler)

role_boot() {
  local path
  for path in /etc/mysql /var/lib/nova /var/lib/neutron /var/lib/glance /var/log/nova /var/log/neutron /var/log/glance; do
    private "$path"
  done
  "$LAB_SRC/inside/machine" start rabbitmq mariadb
}

# role_seed: every schema from nothing, all services at once, then the database at rest for a copy.
role_seed() {
  local jobs=() job rc=0 name sql=''
  until sql_do 'select 1'; do sleep 0.2; done
  for name in "${DATABASES[@]}"; do sql+="create database if not exists $name; grant all on $name.* to 'os'@'%' identified by 'os';"; done
  sql_do "$sql"
  for name in neutron nova keystone glance placement; do
    "seed_$name" >>"$LOG/seed-$name.log" 2>&1 &
    jobs+=("$!:$name")
  done
  for job in "${jobs[@]}"; do
    wait "${job%%:*}" || { echo "the ${job##*:} database could not be made; see $LOG/seed-${job##*:}.log" >&2; rc=1; }
  done
  return "$rc"
}
role_rest_database() {
  "$LAB_SRC/inside/machine" signal TERM mariadb
  while "$LAB_SRC/inside/machine" is-running mariadb; do sleep 0.1; done
}
role_start_services() { "$LAB_SRC/inside/machine" start "${API_SERVICES[@]}"; }

sql_do() { mariadb --no-defaults --socket="$SOCKET" -uroot -e "$1" >/dev/null 2>&1; }
seed_keystone() {
  keystone-manage --config-file "$CONFIG/keystone.conf" db_sync
  keystone-manage --config-file "$CONFIG/keystone.conf" bootstrap --bootstrap-password "$(cat "$CONFIG/admin-password")" \
    --bootstrap-region-id RegionOne --bootstrap-public-url "http://$ADDRESS:5000/v3" \
    --bootstrap-internal-url "http://$ADDRESS:5000/v3" --bootstrap-admin-url "http://$ADDRESS:5000/v3"
}
seed_placement() { placement-manage --config-file "$CONFIG/placement/placement.conf" db sync; }
seed_glance() { glance-manage --config-file "$CONFIG/glance.conf" db_sync; }
seed_neutron() { neutron-db-manage --config-file "$CONFIG/neutron.conf" upgrade head; }
seed_nova() {
  nova-manage --config-file "$CONFIG/nova.conf" api_db sync
  nova-manage --config-file "$CONFIG/nova.conf" cell_v2 map_cell0 --database_connection "mysql+pymysql://os:os@$ADDRESS/nova_cell0"
  nova-manage --config-file "$CONFIG/nova.conf" cell_v2 create_cell --name=cell1
  nova-manage --config-file "$CONFIG/nova.conf" db sync
}

service_mariadb() {
  [[ -d $MYSQL/mysql ]] || mariadb-install-db --no-defaults --user=root --datadir="$MYSQL" \
    --auth-root-authentication-method=normal --skip-test-db
  # Nothing in here is worth an fsync: the lab ends with its machine.
  exec mariadbd --no-defaults --user=root --datadir="$MYSQL" --socket="$SOCKET" --bind-address="$ADDRESS" --port=3306 \
    --pid-file=/run/mysqld.pid --max-connections=500 --innodb-buffer-pool-size=192M --innodb-log-file-size=48M \
    --innodb-flush-log-at-trx-commit=0 --innodb-flush-method=nosync --skip-name-resolve
}
service_rabbitmq() {
  mkdir -p "$DIR/rabbitmq"
  # Fresh queues at every boot, and an Erlang that does not spin while it waits.
  export HOME=$DIR/rabbitmq RABBITMQ_NODENAME=lab@ctl RABBITMQ_MNESIA_BASE=$DIR/rabbitmq RABBITMQ_LOG_BASE=$LOG \
    RABBITMQ_CONFIG_FILE=$CONFIG/rabbitmq.conf RABBITMQ_ENABLED_PLUGINS_FILE=$CONFIG/rabbitmq-plugins \
    RABBITMQ_PID_FILE=/run/rabbitmq.pid RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS='+sbwt none +sbwtdcpu none +sbwtdio none +S 2:2'
  exec /usr/lib/rabbitmq/bin/rabbitmq-server
}

# uwsgi closes every connection after its answer and has to say so, or keep-alive clients see resets.
wsgi() { # PORT SERVICE
  export LAB_DIR LAB_WSGI=$2 PYTHONPATH=$LAB_SRC/python
  exec uwsgi --plugins python3 --http-socket "$ADDRESS:$1" --wsgi-file "$LAB_SRC/python/lab_wsgi.py" --processes 1 \
    --threads 8 --enable-threads --lazy-apps --master --die-on-term --buffer-size 65535 --add-header "Connection: close" "${@:3}"
}
service_keystone() { wsgi 5000 keystone --pyargv "--config-file $CONFIG/keystone.conf"; }
service_placement() { OS_PLACEMENT_CONFIG_DIR=$CONFIG/placement wsgi 8778 placement; }

wait_port() { until (exec 3<>"/dev/tcp/$ADDRESS/$1") 2>/dev/null; do sleep 0.2; done; }
console() { # MODULE NAME CONFIG
  export LAB_DIR PYTHONPATH=$LAB_SRC/python
  exec "$PYTHON" "$LAB_SRC/python/console.py" "$1" "$2" --config-file "$CONFIG/$3"
}
service_glance() { console glance.cmd.api glance-api glance.conf; }
service_neutron() { wait_port 5672; console neutron.cmd.eventlet.server neutron-server neutron.conf; }
service_nova-api() { wait_port 5672; console nova.cmd.api nova-api nova.conf; }
service_nova-conductor() { wait_port 5672; console nova.cmd.conductor nova-conductor nova.conf; }
service_nova-scheduler() { wait_port 5672; console nova.cmd.scheduler nova-scheduler nova.conf; }
service_prometheus() {
  exec prometheus --config.file="$CONFIG/prometheus.yml" --storage.tsdb.path="$DIR/prometheus" "--web.listen-address=$ADDRESS:9090"
}
