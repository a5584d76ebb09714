// SPDX-License-Identifier: Apache-2.0
//! Pod security standards: what a pod may not do in a namespace that asks for the level `baseline`
//! or `restricted`. Levels come from the namespace's labels; what breaks them is told in the words
//! of the reference, baseline first. Acting on it is the server's part.

use std::collections::BTreeMap;

use cobaltcore_schema::FieldError;
use cobaltcore_text::go;
use serde_json::Value;

use crate::json::at;
use crate::security_checks::findings;

const PREFIX: &str = "pod-security.kubernetes.io/";
/// What a namespace does about pods that break its level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecurityMode {
    /// They are refused.
    Enforce,
    /// Their creator is warned.
    Warn,
}

impl SecurityMode {
    fn label(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Warn => "warn",
        }
    }
}

/// How much a namespace forbids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Privileged,
    Baseline,
    Restricted,
}

impl Level {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "privileged" => Self::Privileged,
            "baseline" => Self::Baseline,
            "restricted" => Self::Restricted,
            _ => return None,
        })
    }
}

fn label<'a>(namespace: &'a Value, key: &str) -> Option<&'a str> {
    at(namespace, "metadata.labels")?
        .get(format!("{PREFIX}{key}"))?
        .as_str()
}

/// What is wrong with the levels a namespace asks for.
pub fn security_label_errors(namespace: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for mode in ["enforce", "audit", "warn"] {
        let field = |key: &str| format!("metadata.labels[{PREFIX}{key}]");
        if let Some(level) = label(namespace, mode)
            && Level::parse(level).is_none()
        {
            let detail = "must be one of privileged, baseline, restricted";
            errors.push(FieldError::invalid(field(mode), &Value::from(level), detail));
        }
        let key = format!("{mode}-version");
        if let Some(version) = label(namespace, &key)
            && !is_version(version)
        {
            let detail = "must be \"latest\" or \"v1.x\"";
            errors.push(FieldError::invalid(field(&key), &Value::from(version), detail));
        }
    }
    errors
}

fn is_version(text: &str) -> bool {
    let digits = |minor: &str| !minor.is_empty() && minor.bytes().all(|b| b.is_ascii_digit());
    text == "latest" || text.strip_prefix("v1.").is_some_and(digits)
}

/// A level as it was understood in one release of Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Policy<'a> {
    level: Level,
    /// As the labels name it.
    name: &'a str,
    /// As the labels name it.
    version: &'a str,
}

impl<'a> Policy<'a> {
    /// What a namespace asks for; who is not told when to warn is warned of what is enforced.
    fn of(namespace: &'a Value, mode: SecurityMode) -> Option<Self> {
        let version = |mode: &str| label(namespace, &format!("{mode}-version"));
        let own = label(namespace, mode.label());
        let (name, version) = match (own, mode) {
            (Some(name), _) => (name, version(mode.label())),
            (None, SecurityMode::Warn) => (
                label(namespace, "enforce")?,
                version("warn").or_else(|| version("enforce")),
            ),
            (None, SecurityMode::Enforce) => return None,
        };
        Some(Self {
            level: Level::parse(name)?,
            name,
            version: version.unwrap_or("latest"),
        })
    }

    /// The minor number of the release; the latest one knows everything.
    fn release(self) -> u32 {
        let minor = self.version.strip_prefix("v1.");
        minor.and_then(|minor| minor.parse().ok()).unwrap_or(u32::MAX)
    }
}

impl std::fmt::Display for Policy<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}:{}\"", self.name, self.version)
    }
}

/// How a pod, or the template of pods, breaks the level its namespace asks for:
/// `"restricted:latest": a (why), b (why)`.
pub fn security_violation(namespace: &Value, mode: SecurityMode, pod: &Value) -> Option<String> {
    let policy = Policy::of(namespace, mode)?;
    let findings = findings(pod, policy.level, policy.release());
    if findings.is_empty() {
        return None;
    }
    let texts: Vec<String> = findings
        .into_iter()
        .map(|(reason, detail)| format!("{reason} ({detail})"))
        .collect();
    Some(format!("{policy}: {}", texts.join(", ")))
}

/// Which of the pods of a namespace (and their names) break the level it begins to enforce.
/// They stay; whoever changes the labels is warned.
pub fn security_relabel_warnings<'a>(
    new: &Value,
    old: &Value,
    pods: impl IntoIterator<Item = (&'a str, &'a Value)>,
) -> Vec<String> {
    let before = Policy::of(old, SecurityMode::Enforce);
    let Some(policy) = Policy::of(new, SecurityMode::Enforce) else {
        return Vec::new();
    };
    let eased = before.is_some_and(|b| b.version == policy.version && policy.level <= b.level);
    if policy.level == Level::Privileged || eased {
        return Vec::new();
    }
    let mut breaches: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (name, pod) in pods {
        let reasons: Vec<&str> = findings(pod, policy.level, policy.release())
            .into_iter()
            .map(|(reason, _)| reason)
            .collect();
        if !reasons.is_empty() {
            breaches.entry(reasons.join(", ")).or_default().push(name);
        }
    }
    if breaches.is_empty() {
        return Vec::new();
    }
    let namespace = go::quote(
        at(new, "metadata.name")
            .and_then(Value::as_str)
            .unwrap_or_default(),
    );
    let mut lines: Vec<String> = breaches
        .into_iter()
        .map(|(reasons, pods)| {
            let first = pods.iter().min().copied().unwrap_or_default();
            match pods.len() - 1 {
                0 => format!("{first}: {reasons}"),
                1 => format!("{first} (and 1 other pod): {reasons}"),
                others => format!("{first} (and {others} other pods): {reasons}"),
            }
        })
        .collect();
    lines.sort();
    let head =
        format!("existing pods in namespace {namespace} violate the new PodSecurity enforce level {policy}");
    lines.insert(0, head);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn violation(level: &str, spec: &Value) -> Option<String> {
        let namespace = json!({"metadata": {"labels": {format!("{PREFIX}enforce"): level}}});
        security_violation(&namespace, SecurityMode::Enforce, &json!({"spec": spec}))
    }

    #[test]
    fn a_plain_pod_is_baseline_and_not_restricted() {
        let spec = json!({"containers": [{"name": "a", "image": "x"}]});
        assert_eq!(violation("privileged", &spec), None);
        assert_eq!(violation("baseline", &spec), None);
        assert_eq!(
            violation("restricted", &spec).unwrap(),
            "\"restricted:latest\": allowPrivilegeEscalation != false (container \"a\" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container \"a\" must set securityContext.capabilities.drop=[\"ALL\"]), runAsNonRoot != true (pod or container \"a\" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container \"a\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")"
        );
    }

    #[test]
    fn a_careful_pod_is_restricted() {
        let spec = json!({"securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "volumes": [{"name": "v", "emptyDir": {}}],
            "containers": [{"name": "a", "image": "x", "securityContext": {"allowPrivilegeEscalation": false,
                "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}}}]});
        assert_eq!(violation("restricted", &spec), None);
    }

    #[test]
    fn each_breach_of_the_baseline_is_named() {
        let container = |context: Value| json!({"containers": [{"name": "a", "securityContext": context}]});
        for (spec, text) in [
            (
                json!({"hostNetwork": true, "hostPID": true}),
                "host namespaces (hostNetwork=true, hostPID=true)",
            ),
            (
                container(json!({"privileged": true})),
                "privileged (container \"a\" must not set securityContext.privileged=true)",
            ),
            (
                container(json!({"capabilities": {"add": ["NET_ADMIN"]}})),
                "non-default capabilities (container \"a\" must not include \"NET_ADMIN\" in securityContext.capabilities.add)",
            ),
            (
                json!({"volumes": [{"name": "v", "hostPath": {}}, {"name": "w", "hostPath": {}}]}),
                "hostPath volumes (volumes \"v\", \"w\")",
            ),
            (
                json!({"containers": [{"name": "a", "ports": [{"hostPort": 80}]}]}),
                "hostPort (container \"a\" uses hostPort 80)",
            ),
            (
                container(json!({"procMount": "Unmasked"})),
                "procMount (container \"a\" must not set securityContext.procMount to \"Unmasked\")",
            ),
            (
                json!({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}),
                "seccompProfile (pod must not set securityContext.seccompProfile.type to \"Unconfined\")",
            ),
            (
                json!({"securityContext": {"sysctls": [{"name": "kernel.x"}]}}),
                "forbidden sysctls (kernel.x)",
            ),
            (
                json!({"securityContext": {"seLinuxOptions": {"type": "x_t", "user": "u"}}}),
                "seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type \"x_t\"; user may not be set)",
            ),
        ] {
            assert_eq!(
                violation("baseline", &spec).unwrap(),
                format!("\"baseline:latest\": {text}")
            );
        }
    }

    #[test]
    fn levels_and_versions_are_checked() {
        let namespace = json!({"metadata": {"labels": {format!("{PREFIX}enforce"): "strict", format!("{PREFIX}warn-version"): "1.2"}}});
        let fields: Vec<String> = security_label_errors(&namespace)
            .into_iter()
            .map(|e| e.to_string())
            .collect();
        assert_eq!(
            fields,
            [
                format!(
                    "metadata.labels[{PREFIX}enforce]: Invalid value: \"strict\": must be one of privileged, baseline, restricted"
                ),
                format!(
                    "metadata.labels[{PREFIX}warn-version]: Invalid value: \"1.2\": must be \"latest\" or \"v1.x\""
                ),
            ]
        );
    }

    #[test]
    fn a_level_is_that_of_the_release_named() {
        let plain = json!({"spec": {"containers": [{"name": "a", "image": "x"}]}});
        let namespace = |version: &str| {
            json!({"metadata": {"name": "n", "labels": {
                format!("{PREFIX}enforce"): "restricted", format!("{PREFIX}enforce-version"): version}}})
        };
        let old = security_violation(&namespace("v1.18"), SecurityMode::Enforce, &plain).unwrap();
        assert_eq!(
            old,
            "\"restricted:v1.18\": allowPrivilegeEscalation != false (container \"a\" must set securityContext.allowPrivilegeEscalation=false), runAsNonRoot != true (pod or container \"a\" must set securityContext.runAsNonRoot=true)"
        );
        let warned = security_violation(&namespace("v1.18"), SecurityMode::Warn, &plain);
        assert_eq!(
            warned,
            Some(old),
            "who is not told when to warn is warned of what is enforced"
        );
        let probed =
            json!({"spec": {"containers": [{"name": "a", "livenessProbe": {"httpGet": {"host": "h"}}}]}});
        let baseline = |version: &str| {
            json!({"metadata": {"labels": {
                format!("{PREFIX}enforce"): "baseline", format!("{PREFIX}enforce-version"): version}}})
        };
        assert_eq!(
            security_violation(&baseline("v1.33"), SecurityMode::Enforce, &probed),
            None
        );
        assert_eq!(
            security_violation(&baseline("v1.34"), SecurityMode::Enforce, &probed).unwrap(),
            "\"baseline:v1.34\": probe or lifecycle host (container \"a\" uses probe or lifecycle host \"h\")"
        );
    }

    /// Before there were fields, profiles were annotations, and some still count.
    #[test]
    fn profiles_named_in_annotations_count() {
        let baseline = |version: &str| {
            json!({"metadata": {"labels": {
                format!("{PREFIX}enforce"): "baseline", format!("{PREFIX}enforce-version"): version}}})
        };
        let pod = json!({"metadata": {"annotations": {
                "container.apparmor.security.beta.kubernetes.io/a": "unconfined",
                "container.apparmor.security.beta.kubernetes.io/b": "runtime/default",
                "container.seccomp.security.alpha.kubernetes.io/a": "unconfined",
                "container.seccomp.security.alpha.kubernetes.io/gone": "unconfined"}},
            "spec": {"containers": [{"name": "a"}]}});
        let armor = "forbidden AppArmor profile (annotation must not set AppArmor profile type to \"container.apparmor.security.beta.kubernetes.io/a=\"unconfined\"\")";
        let seccomp = "seccompProfile (forbidden annotation container.seccomp.security.alpha.kubernetes.io/a=\"unconfined\")";
        for (version, wanted) in [
            ("v1.18", format!("\"baseline:v1.18\": {armor}, {seccomp}")),
            ("v1.35", format!("\"baseline:v1.35\": {armor}")),
        ] {
            let told = security_violation(&baseline(version), SecurityMode::Enforce, &pod);
            assert_eq!(told, Some(wanted));
        }
    }

    #[test]
    fn pods_that_break_a_new_level_are_named() {
        let labelled =
            |level: &str| json!({"metadata": {"name": "n", "labels": {format!("{PREFIX}enforce"): level}}});
        let (plain, shared) = (
            json!({"spec": {"containers": [{"name": "a"}]}}),
            json!({"spec": {"hostNetwork": true}}),
        );
        let pods = [("b", &shared), ("a", &shared), ("c", &plain)];
        let warnings = |new: &str, old: &str| security_relabel_warnings(&labelled(new), &labelled(old), pods);
        assert_eq!(
            warnings("baseline", "privileged"),
            [
                "existing pods in namespace \"n\" violate the new PodSecurity enforce level \"baseline:latest\"",
                "a (and 1 other pod): host namespaces"
            ]
        );
        assert!(
            warnings("baseline", "restricted").is_empty(),
            "a level that is eased breaks nothing"
        );
        assert_eq!(warnings("restricted", "baseline").len(), 3);
    }
}
