// SPDX-License-Identifier: Apache-2.0
//! The sound engine keeps its promises: every row of the failure matrix ends as it must, the same
//! seed tells the same story, and a batch of seeds breaks nothing.

#![allow(clippy::unwrap_used)]

use cobaltcore_ha_simulation::{
    Batch, Options, Scenario, acceptance, run_batch, run_scenario, run_seed, scenarios,
};

/// What random worlds are made of: hosts and their parts, networks, replicas, the cloud, devices, people, guests, clocks,
/// messages and stores.
const KINDS: [&str; 70] = [
    "PowerLoss",
    "PowerOn",
    "Panic",
    "Hang",
    "SelfReboot",
    "Agent",
    "Compute",
    "Kubelet",
    "Libvirt",
    "Mgmt",
    "Uplink",
    "ReplicaHosts",
    "ReplicaKubernetes",
    "WatchStalls",
    "ReplicaNova",
    "ReplicaPeers",
    "ReplicaDeaf",
    "ReplicaMute",
    "ReplicaClosed",
    "HostDeaf",
    "HostMute",
    "KubernetesUnheard",
    "NovaUnheard",
    "BmcUnheard",
    "JournalFull",
    "JournalFlaky",
    "JournalCut",
    "CrashReplica",
    "CrashLeader",
    "Freeze",
    "FreezeLeader",
    "Kubernetes",
    "Nodes",
    "Down",
    "Nova",
    "NovaRefusesService",
    "NovaRefusesMoves",
    "Rabbit",
    "Complete",
    "Capacity",
    "Request",
    "Bmc",
    "BmcLies",
    "Clock",
    "ReplicaClock",
    "Delete",
    "OwnerStops",
    "GuestDies",
    "NovaNotices",
    "Maintenance",
    "Announce",
    "Cover",
    "Meddle",
    "Unpark",
    "Healed",
    "Pause",
    "PauseGuest",
    "Chatter",
    "SpoolFull",
    "SpoolSqueezed",
    "SpoolSlow",
    "StoreFails",
    "StoreSlow",
    "StoreLost",
    "a message is lost",
    "a message is doubled",
    "a message is late",
    "a request leaves late",
    "Nova fails without an effect",
    "Nova fails after the effect",
];
/// What comes of them only in the middle of a recovery.
const CONSEQUENCES: [&str; 21] = [
    "a destination hears late",
    "a destination fails",
    "a destination is gone",
    "a device says Off too early",
    "a leader dies before a record",
    "a leader dies at a record",
    "a leader dies after the effect",
    "a leader dies after the answer",
    "Kubernetes does it, and nobody hears of it",
    "Nova does it, and nobody hears of it",
    "a device does it, and nobody hears of it",
    "a guest runs, and Nova is not told",
    "a guest that was moved is started",
    "a lease is renewed, and its holder does not know",
    "a record is written, and its writer does not know",
    "a record comes late",
    "a record is refused",
    "a journal cannot be read",
    "a term ends for want of a journal",
    "another level is tried",
    "a node cannot be marked",
];

fn options(seed: u64, trace: bool) -> Options {
    Options {
        trace,
        ..Options::new(seed)
    }
}

fn all_end_well(rows: &[Scenario]) {
    let failed: Vec<String> = rows
        .iter()
        .filter_map(|row| {
            let run = run_scenario(row.name, options(7, false)).unwrap();
            run.violation
                .map(|violation| format!("{}: {violation}", row.name))
        })
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn every_row_of_the_failure_matrix_ends_as_it_must() {
    all_end_well(&scenarios());
    let rows = |first: char| {
        scenarios()
            .iter()
            .filter(|row| row.name.starts_with(first))
            .count()
    };
    assert_eq!(rows('f'), 60, "all rows");
    assert_eq!(
        rows('p'),
        88,
        "and what people, watchdogs, spares, leaders, one-way streets, journals, racks, groups, lists and boots bring about"
    );
}

#[test]
fn every_scenario_of_acceptance_ends_as_it_must() {
    all_end_well(&acceptance());
}

#[test]
fn a_leader_may_crash_at_any_step() {
    for seed in 0..96 {
        let run = run_scenario("f14-leader-crashes-at-a-step", options(seed, false)).unwrap();
        assert!(run.violation.is_none(), "seed {seed}: {}", run.violation.unwrap());
        assert_eq!(run.recovered, 2, "seed {seed}: each guest moves once");
    }
}

/// What a dead host said of its guests before it was switched off must not keep them down.
#[test]
fn a_destination_may_die_at_any_moment() {
    for seed in 0..48 {
        let run = run_scenario("f34-destination-dies", options(seed, false)).unwrap();
        assert!(run.violation.is_none(), "seed {seed}: {}", run.violation.unwrap());
    }
}

/// Whenever its host listed its guests last, before the crash or after it.
#[test]
fn a_guest_may_crash_at_any_moment() {
    for seed in 0..24 {
        let run = run_scenario("f45-guest-dies", options(seed, false)).unwrap();
        assert!(run.violation.is_none(), "seed {seed}: {}", run.violation.unwrap());
    }
}

/// A guest that may have arrived on a host that died silently; a host that is switched on during a storm; one that answers
/// when its incident may go on; a person who has the compute service enabled in the middle of it; a device that lies about a
/// host that hangs; three hosts whose guests wait for hosts that wait for their places; a person who ends an incident while
/// its guests are locked; a stopped guest whose second host dies before it was stopped again; a record of Nova that nobody
/// closes; an old look at a service that was enabled meanwhile; a new leader who has not asked yet whose host it is;
/// maintenance that is still on its way back when its host turns out to be dead; a device that says Off of a host that
/// somebody switched on while its guests are moved; a host that lives and whose device is that of a dead one; a hold that was
/// on its way when the fence was lost, and counted for the next; a
/// guest on its way to a host that had booted lately and was taken for one of its own; a host that was left to itself with our
/// taint on it, and whose rack is at its limit; a guest that was on its way to two hosts, of which one is off and the other
/// was taken back; a host that booted while nobody led, though somebody had signed that it is off; an owner who stopped a guest
/// between two attempts to move it; an owner who stopped a crashed guest while a pause kept it from being restarted;
/// a host that works again while the order to switch it off waits for the journal; a leader to whom an emptied host that is off
/// had to speak before another was recovered; a host that was given back while what told it to take a guest was still unread,
/// and the guest on its way elsewhere; a host that was signed for, and that a new leader did not know to be let go of; somebody's
/// maintenance that was set while the journal stood still; a guest about to be asked for elsewhere when the host it was on its
/// way to was given back; a power cut before anything of a new segment was flushed, and all before it collected; a word of an
/// earlier boot that came late and made a new replica deaf to the host; maintenance that was set before the order to switch it
/// off left, and after the last look at it; a host that was switched on while nobody led, whose device says Off to whoever leads
/// next; a record of Nova that a late message opened again between the last look at it and the release.
#[test]
fn seeds_that_once_broke_a_promise_keep_it() {
    for seed in [
        500_005_685,
        9_021_967,
        705_266_115,
        6697,
        9580,
        702_631,
        704_681,
        703_467,
        808_928,
        812_059,
        5408,
        9730,
        100,
        832,
        2723,
        701_834,
        47_000_418,
        108_002_948,
        111_003_486,
        91_003_189,
        703_659,
        5_004_194,
        9_011_664,
        705_200_720,
        808_005_400,
        954_402_401,
        954_032_345,
        31_013_192,
        41_002_368,
        41_007_796,
        300_044_406,
        300_051_781,
        8593,
        1_000_009_723,
        1_000_037_073,
        1_100_005_206,
        1_100_033_776,
        72_922,
        96_161,
    ] {
        let run = run_seed(options(seed, false));
        assert!(run.violation.is_none(), "seed {seed}: {}", run.violation.unwrap());
    }
}

#[test]
fn a_seed_repeats_exactly() {
    let first = run_seed(options(42, true));
    let second = run_seed(options(42, true));
    assert!(!first.trace.is_empty());
    assert_eq!(first.trace, second.trace);
    assert_ne!(first.trace, run_seed(options(43, true)).trace);
}

#[test]
fn a_batch_breaks_no_promise_and_does_something() {
    let mut told = 0;
    let report = run_batch(
        Batch {
            base: 1,
            count: 60,
            prepare: None,
        },
        |done| told = done,
    );
    let failure = report
        .failure
        .map(|f| format!("seed {}: {}", f.seed, f.violation));
    assert_eq!(failure, None);
    assert_eq!((report.seeds, told), (60, 60));
    assert!(
        report.recovered > 20 && report.fences > 10,
        "{} moved, {} fenced",
        report.recovered,
        report.fences
    );
}

/// Every kind of trouble that random worlds are to have does come, and not only once in a thousand worlds.
#[test]
fn everything_that_can_go_wrong_does() {
    let report = run_batch(
        Batch {
            base: 500_000,
            count: 1000,
            prepare: None,
        },
        |_| {},
    );
    let failure = report
        .failure
        .map(|f| format!("seed {}: {}", f.seed, f.violation));
    assert_eq!(failure, None);
    let missing: Vec<&str> = KINDS
        .into_iter()
        .chain(CONSEQUENCES)
        .filter(|kind| !report.struck.contains_key(*kind))
        .collect();
    assert!(missing.is_empty(), "never seen: {missing:?}\n{:?}", report.struck);
}

#[test]
fn an_unknown_row_is_said_so() {
    assert!(run_scenario("f99", options(1, false)).is_none());
}
