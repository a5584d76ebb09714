// SPDX-License-Identifier: Apache-2.0
//! The answer of hostnamed's `Describe`: one JSON object. Any member may be missing, null or of a
//! type this version does not expect; such a member is unknown and the rest still counts.

use jiff::Timestamp;
use serde_json::Value;

use super::os_release::OsRelease;

/// What hostnamed knows. `None` means that it did not say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Description {
    pub(super) release: OsRelease,
    pub(super) kernel_name: Option<String>,
    pub(super) kernel_release: Option<String>,
    pub(super) kernel_version: Option<String>,
    pub(super) hardware_vendor: Option<String>,
    pub(super) hardware_model: Option<String>,
    pub(super) hardware_serial: Option<String>,
    pub(super) firmware_version: Option<String>,
    pub(super) firmware_vendor: Option<String>,
    pub(super) firmware_date: Option<Timestamp>,
}

/// Why an answer is not a description.
#[derive(Debug, thiserror::Error)]
pub enum NotADescription {
    /// It is not JSON.
    #[error("the answer of hostnamed is not JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// It is JSON but no object.
    #[error("the answer of hostnamed is not a JSON object")]
    NoObject,
}

impl Description {
    /// Reads the answer of `Describe`.
    ///
    /// ```
    /// use cobaltcore_node_agent::host::Description;
    /// assert!(Description::parse(r#"{"KernelName": "Linux", "FirmwareDate": null}"#).is_ok());
    /// assert!(Description::parse("Linux").is_err());
    /// ```
    pub fn parse(text: &str) -> Result<Self, NotADescription> {
        let Value::Object(members) = serde_json::from_str(text)? else {
            return Err(NotADescription::NoObject);
        };
        let word = |key: &str| {
            let text = members.get(key).and_then(Value::as_str).unwrap_or_default();
            (!text.is_empty()).then(|| text.to_owned())
        };
        let release = members
            .get("OperatingSystemReleaseData")
            .and_then(Value::as_array)
            .map(|entries| OsRelease::from_entries(entries.iter().filter_map(Value::as_str)));
        Ok(Self {
            release: release.unwrap_or_default(),
            kernel_name: word("KernelName"),
            kernel_release: word("KernelRelease"),
            kernel_version: word("KernelVersion"),
            hardware_vendor: word("HardwareVendor"),
            hardware_model: word("HardwareModel"),
            hardware_serial: word("HardwareSerial"),
            firmware_version: word("FirmwareVersion"),
            firmware_vendor: word("FirmwareVendor"),
            firmware_date: members.get("FirmwareDate").and_then(date),
        })
    }
}

/// Microseconds since the epoch. Zero means that the firmware has no date; the status keeps
/// whole seconds.
fn date(value: &Value) -> Option<Timestamp> {
    let micros = value.as_i64().filter(|micros| *micros > 0)?;
    Timestamp::from_second(micros.div_euclid(1_000_000)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn odd_members_are_unknown_and_the_rest_counts() {
        let text = r#"{"KernelName": 5, "KernelRelease": "6.12", "HardwareSerial": null, "FirmwareDate": "x",
            "OperatingSystemReleaseData": ["PRETTY_NAME=\"Garden Linux\"", 7, "lonely"]}"#;
        let description = Description::parse(text).unwrap();
        assert_eq!(description.kernel_name, None);
        assert_eq!(description.kernel_release.as_deref(), Some("6.12"));
        assert_eq!(
            (description.hardware_serial, description.firmware_date),
            (None, None)
        );
        assert_eq!(description.release.get("PRETTY_NAME"), Some("Garden Linux"));
    }

    #[test]
    fn dates_are_microseconds_and_zero_is_none() {
        let at = |text: &str| Description::parse(text).unwrap().firmware_date;
        assert_eq!(
            at(r#"{"FirmwareDate": 1718236800000000}"#),
            Some("2024-06-13T00:00:00Z".parse().unwrap())
        );
        for none in ["0", "-1", "null", "1e300", "9223372036854775807"] {
            assert_eq!(at(&format!("{{\"FirmwareDate\": {none}}}")), None, "{none}");
        }
    }

    proptest! {
        #[test]
        fn any_text_gives_a_description_or_an_error(text in ".{0,300}") {
            let _ = Description::parse(&text);
        }

        #[test]
        fn any_number_as_date_is_a_date_or_nothing(micros in any::<i64>()) {
            let text = format!("{{\"FirmwareDate\": {micros}}}");
            let found = Description::parse(&text).unwrap().firmware_date;
            prop_assert!(found.is_none_or(|at| at.as_second() == micros / 1_000_000));
        }
    }
}
