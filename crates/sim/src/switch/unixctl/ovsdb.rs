// SPDX-License-Identifier: Apache-2.0
//! What a host's ovsdb-server answers.

use super::{Call, Command, command, says};
use crate::switch::derive::view;
use crate::switch::schema::{OPEN_VSWITCH, SERVER};

pub(super) const COMMANDS: &[Command] = &[
    says("memory/show", "", (0, 0), memory),
    command("ovsdb-server/list-dbs", "", (0, 0), |_| {
        Ok(format!("{}\n{}\n", OPEN_VSWITCH.name, SERVER.name))
    }),
    command("ovsdb-server/list-remotes", "", (0, 0), |_| {
        Ok("punix:/var/run/openvswitch/db.sock\n".to_owned())
    }),
    command("ovsdb-server/sync-status", "", (0, 0), |_| {
        Ok("state: active\n".to_owned())
    }),
];

fn memory(call: &Call<'_>) -> String {
    let tables = view(call.state, &call.host.name);
    let (mut atoms, mut cells) = (0, 0);
    for number in 0..tables.schema.tables.len() {
        for row in tables.rows(number).values() {
            cells += row.len() + 2;
            atoms += row.iter().map(|datum| datum.0.len()).sum::<usize>();
        }
    }
    format!("atoms:{atoms} cells:{cells} monitors:2 n-weak-refs:0 sessions:2\n")
}
