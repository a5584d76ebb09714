// SPDX-License-Identifier: Apache-2.0
//! What the state of a unit means. Every state has a condition with a status and a reason, because one empty reason
//! makes the API server refuse the whole status.

use cobaltcore_api::reasons::UnitReason;
use cobaltcore_kit::status::{ConditionStatus, NewCondition};

/// The state of a unit as systemd lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitState {
    /// Whether its definition is loaded, in systemd's words.
    pub load: String,
    /// Whether it runs, in systemd's words.
    pub active: String,
}

/// The condition named after a unit: its state, or why the state is not known.
///
/// ```
/// use cobaltcore_node_agent::systemd::{UnitState, condition};
/// use cobaltcore_kit::status::NewCondition;
/// let state = UnitState { load: "loaded".into(), active: "active".into() };
/// assert_eq!(
///     condition("libvirtd.service", Ok(&state)),
///     NewCondition::yes("libvirtd.service", "Running", "libvirtd.service: active, loaded"),
/// );
/// ```
pub fn condition(unit: &str, state: Result<&UnitState, &str>) -> NewCondition {
    let (status, reason, message) = match state {
        Ok(state) => {
            let (status, reason) = meaning(state);
            (
                status,
                reason,
                format!("{unit}: {}, {}", state.active, state.load),
            )
        }
        Err(why) => (
            ConditionStatus::Unknown,
            UnitReason::Unknown,
            format!("{unit}: systemd cannot be asked: {why}"),
        ),
    };
    NewCondition::new(unit, status, reason, message)
}

/// Whether the unit is known not to run. An unknown state is not a stopped one.
pub fn is_stopped(state: &UnitState) -> bool {
    meaning(state).0 == ConditionStatus::False
}

fn meaning(state: &UnitState) -> (ConditionStatus, UnitReason) {
    use ConditionStatus::{False, True, Unknown};
    if state.load == "not-found" {
        return (False, UnitReason::NotFound);
    }
    match state.active.as_str() {
        "active" => (True, UnitReason::Running),
        "reloading" | "refreshing" => (True, UnitReason::Reloading),
        "inactive" => (False, UnitReason::Stopped),
        "failed" => (False, UnitReason::Failed),
        "deactivating" => (False, UnitReason::Stopping),
        "activating" => (Unknown, UnitReason::Starting),
        "maintenance" => (Unknown, UnitReason::Maintenance),
        _ => (Unknown, UnitReason::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_has_a_status_and_a_reason() {
        use ConditionStatus::{False, True, Unknown};
        let table = [
            ("active", "loaded", True, "Running"),
            ("reloading", "loaded", True, "Reloading"),
            ("refreshing", "loaded", True, "Reloading"),
            ("inactive", "loaded", False, "Stopped"),
            ("failed", "loaded", False, "Failed"),
            ("deactivating", "loaded", False, "Stopping"),
            ("activating", "loaded", Unknown, "Starting"),
            ("maintenance", "loaded", Unknown, "Maintenance"),
            ("", "", Unknown, "Unknown"),
            ("a future state", "loaded", Unknown, "Unknown"),
            ("inactive", "not-found", False, "NotFound"),
            ("inactive", "masked", False, "Stopped"),
        ];
        for (active, load, status, reason) in table {
            let state = UnitState {
                load: load.into(),
                active: active.into(),
            };
            let expected = NewCondition::new(
                "x.service",
                status,
                reason,
                format!("x.service: {active}, {load}"),
            );
            assert_eq!(condition("x.service", Ok(&state)), expected);
            assert_eq!(is_stopped(&state), status == False, "{active} {load}");
        }
    }

    #[test]
    fn a_bus_that_is_away_says_nothing_about_the_unit() {
        let found = condition("x.service", Err("the connection was lost"));
        let message = "x.service: systemd cannot be asked: the connection was lost";
        assert_eq!(found, NewCondition::unknown("x.service", "Unknown", message));
    }
}
