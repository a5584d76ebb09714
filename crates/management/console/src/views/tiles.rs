// SPDX-License-Identifier: Apache-2.0
//! The fleet as tiles: every hypervisor in its zone and building block, coloured by how it is
//! doing and filled by what its guests have taken.

use std::collections::BTreeMap;

use askama::Template;
use cobaltcore_api::{Hypervisor, labels};
use kube::ResourceExt as _;

use super::order::{self, Counted};
use super::{Share, Tone, bytes, condition, label, phase, shares, tone, tone_of_phase};
use crate::fleet::Known;

/// The whole fleet.
#[derive(Debug, Template)]
#[template(path = "tiles.html")]
pub struct Tiles {
    /// The fleet in one line.
    pub summary: Summary,
    /// Zones by name.
    pub zones: Vec<Zone>,
    /// Whether the list is whole.
    pub complete: bool,
}

/// The fleet in one line.
#[derive(Debug, Default, Template, PartialEq, Eq)]
#[template(path = "summary.html")]
pub struct Summary {
    /// How many hosts.
    pub hosts: usize,
    /// How many guests.
    pub guests: i64,
    /// Hosts by phase.
    pub phases: Vec<(&'static str, &'static str, usize)>,
    /// Processors.
    pub cpu: Share,
    /// Memory.
    pub memory: Share,
    /// Hosts somebody should look at.
    pub troubled: usize,
}

/// An availability zone.
#[derive(Debug)]
pub struct Zone {
    /// Its name.
    pub name: String,
    /// Its building blocks by name.
    pub blocks: Vec<Block>,
}

/// A building block.
#[derive(Debug)]
pub struct Block {
    /// Its name.
    pub name: String,
    /// Its hosts by name.
    pub tiles: Vec<Tile>,
}

/// One hypervisor.
#[derive(Debug, Template, PartialEq, Eq)]
#[template(path = "tile.html")]
pub struct Tile {
    /// Its name.
    pub name: String,
    /// Its phase.
    pub phase: &'static str,
    /// How it is doing.
    pub tone: Tone,
    /// How full it is, in steps of five percent.
    pub fill: i64,
    /// How full it is, in percent.
    pub percent: i64,
    /// Its guests.
    pub guests: i64,
    /// What is taken of it, in words.
    pub taken: String,
    /// What is wrong, if anything.
    pub note: String,
}

impl Tile {
    /// The tile of a host.
    pub fn of(hypervisor: &Hypervisor) -> Self {
        let (cpu, memory) = shares(hypervisor);
        let percent = cpu.percent().max(memory.percent());
        Self {
            name: hypervisor.name_any(),
            phase: phase(hypervisor),
            tone: tone(hypervisor),
            fill: percent.clamp(0, 100) / 5,
            percent,
            guests: guests(hypervisor),
            taken: format!(
                "{} CPU, {} of {} memory",
                cpu.counts(),
                bytes(memory.used),
                bytes(memory.total)
            ),
            note: note(hypervisor),
        }
    }
}

/// The one sentence that explains why a host is not simply fine.
fn note(hypervisor: &Hypervisor) -> String {
    let failing = ["NodeReady", "LibVirtConnection", "Ready"]
        .into_iter()
        .filter_map(|type_| condition(hypervisor, type_))
        .find(|condition| condition.status == "False");
    let recovering = condition(hypervisor, "HaRecovery").filter(|condition| condition.status == "True");
    recovering
        .or(failing)
        .map(|condition| {
            if condition.message.is_empty() {
                format!("{}: {}", condition.type_, condition.reason)
            } else {
                condition.message.clone()
            }
        })
        .unwrap_or_default()
}

fn guests(hypervisor: &Hypervisor) -> i64 {
    hypervisor
        .status
        .as_ref()
        .map_or(0, |status| status.num_instances)
}

impl Summary {
    /// The summary of all hosts.
    pub fn of(known: &Known) -> Self {
        let mut summary = Self::default();
        let mut phases: BTreeMap<&'static str, usize> = BTreeMap::new();
        for hypervisor in known.hypervisors.objects() {
            let (cpu, memory) = shares(hypervisor);
            summary.hosts += 1;
            summary.guests += guests(hypervisor);
            summary.cpu = summary.cpu.plus(cpu);
            summary.memory = summary.memory.plus(memory);
            summary.troubled += usize::from(tone(hypervisor) >= Tone::Warn);
            *phases.entry(phase(hypervisor)).or_default() += 1;
        }
        summary.phases = phases
            .into_iter()
            .map(|(phase, count)| (phase, tone_of_phase(phase).class(), count))
            .collect();
        summary
    }
}

impl Tiles {
    /// The tiles of all hosts.
    pub fn of(known: &Known) -> Self {
        let mut zones: BTreeMap<Counted, BTreeMap<Counted, Vec<Tile>>> = BTreeMap::new();
        let counted = |hypervisor: &Hypervisor, key| Counted(label(hypervisor, key));
        for hypervisor in known.hypervisors.objects() {
            let zone = zones.entry(counted(hypervisor, labels::ZONE)).or_default();
            let block = zone
                .entry(counted(hypervisor, labels::BUILDING_BLOCK))
                .or_default();
            block.push(Tile::of(hypervisor));
        }
        let block = |(name, mut tiles): (Counted, Vec<Tile>)| {
            tiles.sort_by(|a, b| order::counted(&a.name, &b.name));
            Block { name: name.0, tiles }
        };
        Self {
            summary: Summary::of(known),
            zones: zones
                .into_iter()
                .map(|(name, blocks)| Zone {
                    name: name.0,
                    blocks: blocks.into_iter().map(block).collect(),
                })
                .collect(),
            complete: known.hypervisors.complete,
        }
    }
}
