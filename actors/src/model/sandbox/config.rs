//! The Tenant's sandbox configuration (spec: sandbox, section 5; http-api, section 15.4). It is stored as it was sent;
//! [`SandboxConfig`] is what it means, every default in force.

use serde_json::json;

use super::network::DEV_HOSTS;
use super::resolve::resolve;
use super::resource::SandboxKind;
use super::spec::{SandboxRequest, SandboxSpec, cpus, memory_mib};
use super::{DEFAULT_CPUS, DEFAULT_IDLE, DEFAULT_MEMORY_MIB, shapes};
use crate::model::json::{Json, JsonMap};
use crate::model::shape::whole;

/// The one harness that sessions of this Runtime run in, as placement names it.
pub const HARNESS: &str = "nylorun";

/// CPUs and MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resources {
    /// CPUs.
    pub cpus: u32,
    /// MiB.
    pub memory_mib: u64,
}

impl Resources {
    fn read(value: Option<&Json>, unless_said: Self) -> Self {
        let member = |name: &str| value.and_then(|value| value.get(name));
        Self {
            cpus: member("cpus").and_then(cpus).unwrap_or(unless_said.cpus),
            memory_mib: member("memory")
                .and_then(Json::as_str)
                .and_then(memory_mib)
                .unwrap_or(unless_said.memory_mib),
        }
    }

    fn view(self) -> Json {
        json!({"cpus": self.cpus, "memoryMiB": self.memory_mib})
    }
}

/// What a session gets that asks for nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum DefaultSandbox {
    /// No sandbox.
    None,
    /// A virtual one with the Tenant's defaults.
    Virtual,
    /// This one, an object as it was sent.
    Inline(JsonMap),
}

/// The bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Hosts and patterns that may be asked for.
    pub network: Vec<String>,
    /// Most of each.
    pub resources: Resources,
    /// What is had without asking.
    pub default_resources: Resources,
    /// Time without use after which a sandbox stops, a duration.
    pub idle: String,
    /// Most sandbox resources.
    pub sandboxes: i64,
    /// Longest life of a pod, a duration.
    pub ttl: Option<String>,
}

/// Where a session's harness may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HarnessHost {
    /// In the Runtime, or in a harness beside it.
    HarnessContainer,
    /// In the pod sandbox itself.
    Sandbox,
}

impl HarnessHost {
    const ALL: [Self; 2] = [Self::HarnessContainer, Self::Sandbox];

    /// The wire name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HarnessContainer => "harness-container",
            Self::Sandbox => "sandbox",
        }
    }

    fn read(hosts: &Json) -> Vec<Self> {
        let names = hosts.as_array().into_iter().flatten().filter_map(Json::as_str);
        names.filter_map(|name| Self::ALL.into_iter().find(|host| host.as_str() == name)).collect()
    }
}

/// The configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct SandboxConfig {
    /// What a session gets that asks for nothing.
    pub default: DefaultSandbox,
    /// The bounds.
    pub limits: Limits,
    /// `retain` or `delete`.
    pub on_expiry: String,
    /// Between asking a sandbox to stop and ending it, a duration.
    pub stop_grace: String,
    /// By harness or `*`, in the order in which it was sent.
    pub placement: Vec<(String, Vec<HarnessHost>)>,
}

impl SandboxConfig {
    /// Reads what is stored; `{}` is every default.
    ///
    /// # Errors
    /// The first problem, when it has not the shape of a configuration.
    pub fn read(stored: &Json) -> Result<Self, String> {
        if let Some(issue) = shapes::CONFIG.check(stored).first() {
            return Err(issue.to_string());
        }
        let limits = &stored["limits"];
        let text = |value: &Json| value.as_str().map(str::to_owned);
        let network = match limits["network"].as_array() {
            Some(hosts) => hosts.iter().filter_map(text).collect(),
            None => DEV_HOSTS.map(str::to_owned).to_vec(),
        };
        let most = Resources { cpus: 4, memory_mib: 8192 };
        let unless_said = Resources { cpus: DEFAULT_CPUS, memory_mib: DEFAULT_MEMORY_MIB };
        let placement = stored["placement"].as_object().map_or_else(
            || vec![("*".to_owned(), HarnessHost::ALL.to_vec())],
            |map| map.iter().map(|(id, at)| (id.clone(), HarnessHost::read(&at["hosts"]))).collect(),
        );
        Ok(Self {
            default: match &stored["default"] {
                Json::Object(inline) => DefaultSandbox::Inline(inline.clone()),
                Json::String(name) if name == "virtual" => DefaultSandbox::Virtual,
                _ => DefaultSandbox::None,
            },
            limits: Limits {
                network,
                resources: Resources::read(limits.get("resources"), most),
                default_resources: Resources::read(limits.get("defaultResources"), unless_said),
                idle: text(&limits["idle"]).unwrap_or_else(|| DEFAULT_IDLE.to_owned()),
                sandboxes: limits["sandboxes"].as_number().and_then(whole).unwrap_or(100),
                ttl: text(&limits["ttl"]),
            },
            on_expiry: text(&stored["lifecycle"]["onExpiry"]).unwrap_or_else(|| "retain".to_owned()),
            stop_grace: text(&stored["lifecycle"]["stopGrace"]).unwrap_or_else(|| "10s".to_owned()),
            placement,
        })
    }

    /// Where it contradicts itself, every place at once.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let (most, unless_said) = (self.limits.resources, self.limits.default_resources);
        let mut problems = Vec::new();
        if unless_said.cpus > most.cpus {
            problems.push(format!(
                "limits.defaultResources: {} CPUs are more than the {} of limits.resources.",
                unless_said.cpus, most.cpus
            ));
        }
        if unless_said.memory_mib > most.memory_mib {
            problems.push(format!(
                "limits.defaultResources: {} MiB are more than the {} MiB of limits.resources.",
                unless_said.memory_mib, most.memory_mib
            ));
        }
        if let DefaultSandbox::Inline(inline) = &self.default
            && let Err(found) = resolve(&SandboxRequest::read(inline), SandboxKind::Virtual, self)
        {
            problems.extend(found.into_iter().map(|problem| format!("default: {problem}")));
        }
        problems
    }

    /// The spec of a session that asks for nothing; `None` for no sandbox.
    ///
    /// # Errors
    /// Every problem: a seeded or an older configuration may hold a default that it does not allow.
    pub fn default_spec(&self) -> Result<Option<SandboxSpec>, Vec<String>> {
        let request = match &self.default {
            DefaultSandbox::None => return Ok(None),
            DefaultSandbox::Virtual => SandboxRequest::default(),
            DefaultSandbox::Inline(inline) => SandboxRequest::read(inline),
        };
        resolve(&request, SandboxKind::Virtual, self).map(Some)
    }

    /// Where a harness may be.
    #[must_use]
    pub fn hosts_of(&self, harness: &str) -> &[HarnessHost] {
        let of = |name: &str| self.placement.iter().find(|(id, _)| id == name).map(|(_, hosts)| hosts);
        of(harness).or_else(|| of("*")).map_or(&HarnessHost::ALL, Vec::as_slice)
    }

    /// As clients see it.
    #[must_use]
    pub fn view(&self) -> Json {
        let mut limits = json!({
            "network": self.limits.network,
            "resources": self.limits.resources.view(),
            "defaultResources": self.limits.default_resources.view(),
            "idle": self.limits.idle,
            "sandboxes": self.limits.sandboxes,
        });
        if let Some(ttl) = &self.limits.ttl {
            limits["ttl"] = json!(ttl);
        }
        let names = |hosts: &[HarnessHost]| hosts.iter().map(|host| host.as_str()).collect::<Vec<_>>();
        let placement: JsonMap =
            self.placement.iter().map(|(id, hosts)| (id.clone(), json!({"hosts": names(hosts)}))).collect();
        json!({
            "default": match &self.default {
                DefaultSandbox::None => json!("none"),
                DefaultSandbox::Virtual => json!("virtual"),
                DefaultSandbox::Inline(inline) => Json::Object(inline.clone()),
            },
            "limits": limits,
            "lifecycle": {"onExpiry": self.on_expiry, "stopGrace": self.stop_grace},
            "placement": placement,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(stored: Json) -> SandboxConfig {
        SandboxConfig::read(&stored).unwrap()
    }

    #[test]
    fn an_empty_configuration_is_every_default() {
        assert_eq!(
            read(json!({})).view(),
            json!({
                "default": "none",
                "limits": {
                    "network": DEV_HOSTS,
                    "resources": {"cpus": 4, "memoryMiB": 8192},
                    "defaultResources": {"cpus": 2, "memoryMiB": 1024},
                    "idle": "15m",
                    "sandboxes": 100,
                },
                "lifecycle": {"onExpiry": "retain", "stopGrace": "10s"},
                "placement": {"*": {"hosts": ["harness-container", "sandbox"]}},
            })
        );
        assert_eq!(read(json!({})).default_spec(), Ok(None));
    }

    #[test]
    fn what_is_said_replaces_its_default_alone() {
        let config = read(json!({
            "default": "virtual",
            "limits": {"network": [], "resources": {"memory": "16GiB"}, "defaultResources": {"cpus": 1}, "sandboxes": 0, "ttl": "2h"},
            "lifecycle": {"onExpiry": "delete"},
            "placement": {"nylorun": {"hosts": ["sandbox"]}},
        }));
        assert_eq!(config.limits.network, Vec::<String>::new());
        assert_eq!(config.limits.resources, Resources { cpus: 4, memory_mib: 16384 });
        assert_eq!(config.limits.default_resources, Resources { cpus: 1, memory_mib: 1024 });
        assert_eq!((config.limits.sandboxes, config.stop_grace.as_str()), (0, "10s"));
        assert_eq!(config.view()["limits"]["ttl"], "2h");
        assert_eq!(config.default_spec().unwrap().unwrap().resources.cpus, 1);
    }

    #[test]
    fn placement_is_the_harnesss_own_then_that_of_all_then_both() {
        let hosts = |placement: Json| read(json!({"placement": placement})).hosts_of(HARNESS).to_vec();
        let (container, sandbox) = (HarnessHost::HarnessContainer, HarnessHost::Sandbox);
        let of = |name: &str| json!({"hosts": [name]});
        assert_eq!(hosts(json!({"nylorun": of("sandbox"), "*": of("harness-container")})), [sandbox]);
        assert_eq!(hosts(json!({"other": of("sandbox"), "*": of("harness-container")})), [container]);
        assert_eq!(hosts(json!({"other": of("sandbox")})), [container, sandbox]);
    }

    #[test]
    fn every_contradiction_is_told_at_once() {
        let config = read(json!({
            "default": {"image": "i", "network": {"allow": ["a.example"]}},
            "limits": {"resources": {"cpus": 1, "memory": "512MiB"}},
        }));
        let problems = config.problems();
        // The default resources themselves, and the inline default with its image, its host and both resources.
        let starts = [
            "limits.def",
            "limits.def",
            "default: A virtual",
            "default: a.example",
            "default: 2",
            "default: 1024",
        ];
        assert_eq!(problems.len(), starts.len(), "{problems:?}");
        for (problem, start) in problems.iter().zip(starts) {
            assert!(problem.starts_with(start), "{problem} / {start}");
        }
        assert!(read(json!({})).problems().is_empty());
    }

    #[test]
    fn what_has_not_the_shape_of_a_configuration_is_not_read() {
        for bad in [
            json!([]),
            json!({"default": "pod"}),
            json!({"default": {"network": {"preset": "dev"}}}),
            json!({"limits": {"network": ["127.0.0.1"]}}),
            json!({"limits": {"network": {"allow": []}}}),
            json!({"limits": {"resources": {"cpus": 65}}}),
            json!({"limits": {"sandboxes": -1}}),
            json!({"limits": {"sandboxes": 100_001}}),
            json!({"lifecycle": {"stopGrace": "31s"}}),
            json!({"placement": {"*": {"hosts": []}}}),
            json!({"placement": {"*": {"hosts": ["moon"]}}}),
            json!({"more": 1}),
        ] {
            assert!(SandboxConfig::read(&bad).is_err(), "{bad}");
        }
        assert!(SandboxConfig::read(&json!({"lifecycle": {"stopGrace": "30s"}})).is_ok());
    }
}
