// SPDX-License-Identifier: Apache-2.0
//! The Redfish driver against sushy-tools in the lab, whose power button is real.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use cobaltcore_api::names::HostName;
use cobaltcore_ha_engine::{Identity, Power};
use cobaltcore_ha_fencing::{Config, Error, Fences, Level, Target};
use cobaltcore_lab::{Lab, Options};

async fn reads(device: &Level, wanted: Power) {
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        let read = device.power().await;
        if read.as_ref().is_ok_and(|read| *read == wanted) {
            return;
        }
        assert!(
            Instant::now() < until,
            "waited for {wanted:?}, the last answer was {read:?}"
        );
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

#[tokio::test]
async fn a_real_host_is_switched_off_and_on_by_its_real_bmc() {
    let lab = match Lab::join_or_start(&Options::hosts_only(2)) {
        Ok(lab) => lab,
        Err(skip) => return skip.print(),
    };
    let host = &lab.description().hosts[0];
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bmc.yaml");
    let bmc = &host.redfish;
    std::fs::write(
        &file,
        format!("username: {}\npassword: {}\n", bmc.username, bmc.password),
    )
    .unwrap();
    let text = format!(
        "levels: [[{{driver: redfish, url: '{{bmc}}', credentials_file: {}}}]]\nallowed_networks: [10.0.0.0/8]\nhosts: {{{}: {{bmc: '{}'}}}}\n",
        file.display(),
        host.name,
        bmc.url
    );
    let config: Config = cobaltcore_kit::config::Config::new()
        .text("t.yaml", &text)
        .load()
        .unwrap();
    let fences = Fences::new(config, None).unwrap();
    let target = Target::new(HostName::new(host.name.as_str()).unwrap());
    let device = fences.level(&target, 0).unwrap();

    let meant = Identity {
        system_uuid: Some(host.uuid.clone()),
        serial: None,
    };
    let told = fences.identify(&target, 0).await.unwrap();
    assert!(meant.matches(&told), "{told:?} is not {meant:?}");
    reads(&device, Power::On).await;

    device.power_off().await.unwrap();
    reads(&device, Power::Off).await;
    assert!(!lab.host(0).unwrap().is_on().unwrap(), "the host itself is off");
    device.power_off().await.expect("off twice is off once");

    assert!(device.release().await.unwrap().is_none());
    reads(&device, Power::On).await;

    std::fs::write(&file, format!("username: {}\npassword: wrong\n", bmc.username)).unwrap();
    let error = device.power().await.unwrap_err();
    assert!(matches!(error, Error::Refused { status: 401, .. }), "{error}");
}
