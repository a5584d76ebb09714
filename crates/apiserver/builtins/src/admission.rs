// SPDX-License-Identifier: Apache-2.0
//! Defaults the reference's admission plugins add to pods and nodes. They need facts about the
//! cluster (which priority class is the default, what it is worth), which the caller passes in.

use cobaltcore_schema::FieldError;
use serde_json::{Value, json};

use crate::json::{at, ensure, entries, list, text};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// What the caller knows about a priority class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Priority {
    /// Name of the class; empty when no class applies.
    pub class: String,
    /// Its value.
    pub value: i64,
    /// Its preemption policy; empty is `PreemptLowerPriority`.
    pub preemption_policy: String,
}

/// A pod without an account runs as `default`; the old field shows the same name.
pub fn default_service_account(pod: &mut Value) {
    let name = text(pod, "spec.serviceAccountName").to_owned();
    let name = if name.is_empty() {
        "default".to_owned()
    } else {
        name
    };
    let spec = ensure(pod, "spec");
    spec.insert("serviceAccountName".to_owned(), json!(name));
    spec.insert("serviceAccount".to_owned(), json!(name));
}

/// A pod tolerates nodes that are not ready or unreachable for five minutes, unless it says
/// otherwise.
pub fn default_tolerations(pod: &mut Value) {
    let tolerates = |pod: &Value, taint: &str| {
        list(pod, "spec.tolerations").iter().any(|toleration| {
            let (key, effect) = (text(toleration, "key"), text(toleration, "effect"));
            (key == taint || key.is_empty()) && (effect == "NoExecute" || effect.is_empty())
        })
    };
    for taint in [NOT_READY, UNREACHABLE] {
        if tolerates(pod, taint) {
            continue;
        }
        let toleration =
            json!({"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
        let tolerations = ensure(pod, "spec").entry("tolerations").or_insert(json!([]));
        match tolerations.as_array_mut() {
            Some(list) => list.push(toleration),
            None => *tolerations = json!([toleration]),
        }
    }
}

/// Gives a pod its priority. `class` is the class the pod names, the default class when it names
/// none, or nothing when there is neither. A priority that contradicts the class is refused.
pub fn default_priority(pod: &mut Value, class: Option<&Priority>) -> Result<(), String> {
    let (value, policy) = class.map_or((0, ""), |class| (class.value, class.preemption_policy.as_str()));
    let policy = if policy.is_empty() {
        "PreemptLowerPriority"
    } else {
        policy
    };
    if let Some(given) = at(pod, "spec.priority").and_then(Value::as_i64)
        && given != value
    {
        return Err(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {value} from the given PriorityClass name"
        ));
    }
    if let Some(given) = at(pod, "spec.preemptionPolicy").and_then(Value::as_str)
        && given != policy
    {
        return Err(format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
        ));
    }
    let spec = ensure(pod, "spec");
    spec.insert("priority".to_owned(), json!(value));
    spec.insert("preemptionPolicy".to_owned(), json!(policy));
    if let Some(class) = class.filter(|class| !class.class.is_empty()) {
        spec.insert("priorityClassName".to_owned(), json!(class.class));
    }
    Ok(())
}

/// The message for a pod that names a class nobody knows (403 Forbidden).
pub fn missing_priority_class(name: &str) -> String {
    format!("no PriorityClass with name {name} was found")
}

/// Gives a pod what the class of its runtime says: overhead, node selector, tolerations. The error
/// is why the pod is refused (403 Forbidden).
pub fn take_runtime_class(pod: &mut Value, class: Option<&Value>) -> Result<(), String> {
    let overhead = class.and_then(|class| at(class, "overhead.podFixed"));
    let given = at(pod, "spec.overhead").filter(|given| given.as_object().is_some_and(|o| !o.is_empty()));
    match (overhead, given) {
        (None, Some(_)) => {
            return Err("Pod Overhead set without corresponding RuntimeClass defined Overhead".to_owned());
        }
        (Some(overhead), Some(given)) if overhead != given => {
            return Err("Pod's Overhead doesn't match RuntimeClass's defined Overhead".to_owned());
        }
        (Some(overhead), _) => {
            let overhead = overhead.clone();
            ensure(pod, "spec").insert("overhead".to_owned(), overhead);
        }
        (None, None) => {}
    }
    let Some(scheduling) = class.and_then(|class| at(class, "scheduling")) else {
        return Ok(());
    };
    for (key, value) in entries(scheduling, "nodeSelector") {
        let own = entries(pod, "spec.nodeSelector").find(|(k, _)| *k == key);
        if let Some((_, own)) = own.filter(|(_, own)| *own != value) {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            return Err(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {}; pod.spec.nodeSelector[{key}] = {}",
                text(value),
                text(own)
            ));
        }
        ensure(pod, "spec.nodeSelector").insert(key.clone(), value.clone());
    }
    for toleration in list(scheduling, "tolerations") {
        let tolerations = ensure(pod, "spec").entry("tolerations").or_insert(json!([]));
        if let Some(known) = tolerations
            .as_array_mut()
            .filter(|known| !known.contains(toleration))
        {
            known.push(toleration.clone());
        }
    }
    Ok(())
}

/// A new node takes no pods until it has reported itself ready.
pub fn taint_new_node(node: &mut Value) {
    let known = list(node, "spec.taints")
        .iter()
        .any(|taint| text(taint, "key") == NOT_READY && text(taint, "effect") == "NoSchedule");
    if known {
        return;
    }
    let taint = json!({"key": NOT_READY, "effect": "NoSchedule"});
    let taints = ensure(node, "spec").entry("taints").or_insert(json!([]));
    match taints.as_array_mut() {
        Some(list) => list.push(taint),
        None => *taints = json!([taint]),
    }
}

/// Finalizers that keep volumes, claims and classes in use from vanishing.
pub fn protect_storage(object: &mut Value, kind: &str) {
    let finalizer = match kind {
        "PersistentVolumeClaim" => "kubernetes.io/pvc-protection",
        "PersistentVolume" => "kubernetes.io/pv-protection",
        "VolumeAttributesClass" => "kubernetes.io/vac-protection",
        _ => return,
    };
    let finalizers = ensure(object, "metadata")
        .entry("finalizers")
        .or_insert(json!([]));
    match finalizers.as_array_mut() {
        Some(list) if list.iter().any(|known| known == finalizer) => {}
        Some(list) => list.push(json!(finalizer)),
        None => *finalizers = json!([finalizer]),
    }
}

/// A ServiceAccount token request: lifetime between ten minutes and 2^32 seconds.
pub fn validate_token_request(request: &Value) -> Vec<FieldError> {
    let seconds = at(request, "spec.expirationSeconds")
        .and_then(Value::as_i64)
        .unwrap_or(3600);
    let mut errors = Vec::new();
    if seconds < 600 {
        errors.push(FieldError::invalid(
            "spec.expirationSeconds",
            &json!(seconds),
            "may not specify a duration less than 10 minutes",
        ));
    }
    if seconds > 1 << 32 {
        errors.push(FieldError::invalid(
            "spec.expirationSeconds",
            &json!(seconds),
            "may not specify a duration larger than 2^32 seconds",
        ));
    }
    errors
}
