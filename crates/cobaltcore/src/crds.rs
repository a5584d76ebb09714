// SPDX-License-Identifier: Apache-2.0
//! `cobaltcore crds`: the project's custom resources, ready for `kubectl apply -f -`.

use std::process::ExitCode;

use clap::Args as ClapArgs;

/// Print the CustomResourceDefinitions as YAML
///
/// Pipe them into a cluster: cobaltcore crds | kubectl apply --server-side -f -
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// Only those of one API group, e.g. kvm.cloud.sap
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let yaml = cobaltcore_api::crds_yaml(args.group.as_deref());
    if yaml.is_empty() {
        let mut groups: Vec<String> = cobaltcore_api::crds()
            .into_iter()
            .map(|crd| crd.spec.group)
            .collect();
        groups.dedup();
        eprintln!(
            "error: no definitions in group {:?}; there are: {}",
            args.group.as_deref().unwrap_or_default(),
            groups.join(", ")
        );
        return ExitCode::from(2);
    }
    say!("{}", yaml.trim_end());
    ExitCode::SUCCESS
}
