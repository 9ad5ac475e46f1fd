//! What is asked for and what the Tenant allows make a spec, or all the reasons why not (spec: sandbox, section 3).

use super::config::SandboxConfig;
use super::network::ceiling_allows;
use super::resource::SandboxKind;
use super::spec::{SandboxRequest, SandboxSpec, SpecNetwork, SpecResources, sorted_hosts};

/// Resolves a request.
///
/// # Errors
/// Every problem, in the order of the section.
pub fn resolve(
    request: &SandboxRequest,
    kind: SandboxKind,
    config: &SandboxConfig,
) -> Result<SandboxSpec, Vec<String>> {
    let mut problems = Vec::new();
    let is_virtual = kind == SandboxKind::Virtual;
    if let (Some(image), true) = (&request.image, is_virtual) {
        problems.push(format!("A virtual sandbox has no image: leave \"{image:.200}\" out."));
    }
    let allow = sorted_hosts(request.allow.as_deref().unwrap_or_default());
    for host in &allow {
        if !ceiling_allows(&config.limits.network, host) {
            problems.push(format!("{host} is not among the hosts that the Tenant allows."));
        } else if is_virtual && host.starts_with('*') {
            problems.push(format!("A virtual sandbox reaches named hosts only: {host} is a pattern."));
        }
    }
    let (most, unless_said) = (&config.limits.resources, &config.limits.default_resources);
    let cpus = request.cpus.unwrap_or(unless_said.cpus);
    if cpus > most.cpus {
        problems.push(format!("{cpus} CPUs are more than the {} that the Tenant allows.", most.cpus));
    }
    let memory = request.memory_mib.unwrap_or(unless_said.memory_mib);
    if memory > most.memory_mib {
        problems.push(format!(
            "{memory} MiB of memory are more than the {} MiB that the Tenant allows.",
            most.memory_mib
        ));
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    Ok(SandboxSpec {
        image: request.image.clone(),
        network: SpecNetwork { allow, ..SpecNetwork::default() },
        resources: SpecResources { cpus, memory: format!("{memory}MiB") },
        idle: config.limits.idle.clone(),
        ..SandboxSpec::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::json::{Json, encode};
    use serde_json::json;

    fn asked(body: Json) -> SandboxRequest {
        SandboxRequest::read(body.as_object().unwrap())
    }

    fn config(stored: Json) -> SandboxConfig {
        SandboxConfig::read(&stored).unwrap()
    }

    #[test]
    fn nothing_asked_for_is_the_tenants_defaults_without_a_network() {
        let spec = resolve(&SandboxRequest::default(), SandboxKind::Virtual, &config(json!({}))).unwrap();
        assert_eq!(
            encode(&spec),
            r#"{"network":{"preset":"none"},"resources":{"cpus":2,"memory":"1024MiB"},"idle":"15m"}"#
        );
        let own = json!({"limits": {"defaultResources": {"cpus": 1, "memory": "256MiB"}, "idle": "1h"}});
        let spec = resolve(&SandboxRequest::default(), SandboxKind::Virtual, &config(own)).unwrap();
        assert_eq!(
            (spec.resources.cpus, spec.resources.memory.as_str(), spec.idle.as_str()),
            (1, "256MiB", "1h")
        );
    }

    #[test]
    fn hosts_are_lowercase_sorted_and_once() {
        let request = asked(json!({"network": {"allow": ["GitLab.com", "github.com", "gitlab.COM"]}}));
        let spec = resolve(&request, SandboxKind::Virtual, &config(json!({}))).unwrap();
        assert_eq!(spec.network.allow, ["github.com", "gitlab.com"]);
        assert_eq!(spec.network.preset, "none");
        let none =
            resolve(&asked(json!({"network": {"allow": []}})), SandboxKind::Virtual, &config(json!({})));
        assert!(!encode(&none.unwrap()).contains("allow"));
    }

    #[test]
    fn all_problems_are_told_in_order() {
        let config = config(
            json!({"limits": {"network": ["*.in.example"], "resources": {"cpus": 2, "memory": "1GiB"}}}),
        );
        let request = asked(json!({
            "image": "busybox",
            "network": {"allow": ["in.example", "*.in.example", "a.in.example"]},
            "resources": {"cpus": 3, "memory": "2GiB"},
        }));
        let problems = resolve(&request, SandboxKind::Virtual, &config).unwrap_err();
        let found = ["image", "*.in.example", "in.example is not", "3 CPUs", "2048 MiB"];
        assert_eq!(problems.len(), found.len(), "{problems:?}");
        for (problem, part) in problems.iter().zip(found) {
            assert!(problem.contains(part), "{problem} / {part}");
        }
        let pod = resolve(&request, SandboxKind::Pod, &config).unwrap_err();
        assert_eq!(pod.len(), 3, "a pod takes an image and a pattern: {pod:?}");
    }
}
