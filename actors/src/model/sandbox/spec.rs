//! A sandbox's spec, as it is pinned on a session and stored on a resource, and what a caller may ask for (spec:
//! sandbox, sections 2, 3 and 6).

use serde::{Deserialize, Serialize};

use crate::model::json::{Json, JsonMap};
use crate::model::manifest::parse_size_bytes;
use crate::model::shape::whole;

/// Least memory of a sandbox, MiB.
pub const LEAST_MEMORY_MIB: u64 = 128;

/// A spec: resolved, so nothing in it depends on the Tenant's settings any more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxSpec {
    /// OCI reference; pods only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// What it may reach.
    #[serde(default)]
    pub network: SpecNetwork,
    /// What it may use.
    #[serde(default)]
    pub resources: SpecResources,
    /// Time without use after which it stops, a duration.
    pub idle: String,
    /// Its volume, a size; pods only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,
    /// When it ends by itself; pods only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<SpecLifecycle>,
}

/// The network of a spec.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpecNetwork {
    /// `none` in everything that is resolved.
    pub preset: String,
    /// Lowercase, sorted, each once; absent when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
}

impl Default for SpecNetwork {
    fn default() -> Self {
        Self { preset: "none".to_owned(), allow: Vec::new() }
    }
}

/// The resources of a spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpecResources {
    /// 1 to 64.
    pub cpus: u32,
    /// A size in MiB: `1024MiB`.
    pub memory: String,
}

/// When a sandbox ends by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpecLifecycle {
    /// A duration from its creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<String>,
}

impl SandboxSpec {
    /// What a session that is attached to a resource pins.
    #[must_use]
    pub fn pinned(self) -> Self {
        Self { storage: None, lifecycle: None, ..self }
    }

    /// As JSON.
    #[must_use]
    pub fn to_json(&self) -> Json {
        serde_json::to_value(self).unwrap_or_default()
    }
}

/// MiB of a size, at least [`LEAST_MEMORY_MIB`]; `None` when it is no size.
#[must_use]
pub fn memory_mib(size: &str) -> Option<u64> {
    parse_size_bytes(size).map(|bytes| bytes.div_ceil(1 << 20).max(LEAST_MEMORY_MIB))
}

/// What a caller asks for. What it does not name stays open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxRequest {
    /// OCI reference.
    pub image: Option<String>,
    /// Hosts and patterns, as sent; `None` when not sent.
    pub allow: Option<Vec<String>>,
    /// CPUs.
    pub cpus: Option<u32>,
    /// MiB.
    pub memory_mib: Option<u64>,
}

impl SandboxRequest {
    /// Reads `{image?, network?: {allow?}, resources?: {cpus?, memory?}}`, whose shape was checked.
    #[must_use]
    pub fn read(body: &JsonMap) -> Self {
        let member = |group: &str, name: &str| body.get(group).and_then(|group| group.get(name));
        let allow = member("network", "allow").and_then(Json::as_array);
        Self {
            image: body.get("image").and_then(Json::as_str).map(str::to_owned),
            allow: allow.map(|hosts| hosts.iter().filter_map(Json::as_str).map(str::to_owned).collect()),
            cpus: member("resources", "cpus").and_then(cpus),
            memory_mib: member("resources", "memory").and_then(Json::as_str).and_then(memory_mib),
        }
    }
}

/// A count of CPUs, whose shape was checked.
pub(super) fn cpus(value: &Json) -> Option<u32> {
    value.as_number().and_then(whole).and_then(|n| u32::try_from(n).ok())
}

/// Hosts as a resolved spec has them: lowercase, sorted, each once.
#[must_use]
pub fn sorted_hosts(hosts: &[String]) -> Vec<String> {
    let mut hosts: Vec<String> = hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::json::encode;
    use serde_json::json;

    #[test]
    fn memory_is_whole_mib_and_at_least_128() {
        for (size, mib) in
            [("1B", 128), ("127MiB", 128), ("129MiB", 129), ("2GiB", 2048), ("1048577KiB", 1025)]
        {
            assert_eq!(memory_mib(size), Some(mib), "{size}");
        }
        assert_eq!(memory_mib("2GB"), None);
    }

    #[test]
    fn a_spec_is_written_without_what_it_has_not_and_pinned_without_what_is_a_pods() {
        let spec = SandboxSpec {
            image: Some("img".into()),
            resources: SpecResources { cpus: 2, memory: "1024MiB".into() },
            idle: "15m".into(),
            storage: Some("5GiB".into()),
            lifecycle: Some(SpecLifecycle { ttl: Some("1h".into()) }),
            ..SandboxSpec::default()
        };
        assert_eq!(
            encode(&spec.clone().pinned()),
            r#"{"image":"img","network":{"preset":"none"},"resources":{"cpus":2,"memory":"1024MiB"},"idle":"15m"}"#
        );
        let again: SandboxSpec = serde_json::from_value(spec.to_json()).unwrap();
        assert_eq!(again, spec);
    }

    #[test]
    fn a_request_keeps_apart_what_was_not_sent() {
        let read = |body: Json| SandboxRequest::read(body.as_object().unwrap());
        assert_eq!(read(json!({})), SandboxRequest::default());
        let full = read(
            json!({"image": "i", "network": {"allow": []}, "resources": {"cpus": 2.0, "memory": "1GiB"}}),
        );
        assert_eq!(full.allow, Some(Vec::new()));
        assert_eq!((full.cpus, full.memory_mib), (Some(2), Some(1024)));
    }
}
