//! Hosts: those of the `dev` preset, what a ceiling lets through, and a network in words (spec: sandbox, sections 2, 3
//! and 5).

use std::collections::BTreeSet;

use crate::model::json::Json;

/// The hosts of the preset `dev`, which are also the ceiling where a Tenant sets none: code hosts. Package registries and
/// mirrors differ from place to place; a Tenant names its own in `limits.network`.
pub const DEV_HOSTS: [&str; 6] = [
    "github.com",
    "api.github.com",
    "codeload.github.com",
    "objects.githubusercontent.com",
    "raw.githubusercontent.com",
    "gitlab.com",
];

/// Whether a ceiling lets a pattern through. An entry `*.s` lets through any name that ends in `.s`, and any pattern
/// `*.t` whose `.t` does; `s` itself it does not.
#[must_use]
pub fn ceiling_allows<S: AsRef<str>>(ceiling: &[S], pattern: &str) -> bool {
    let pattern = pattern.to_ascii_lowercase();
    // Of `*.t` the part that must end in the entry's is `.t`.
    let end = pattern.strip_prefix('*').unwrap_or(&pattern);
    ceiling.iter().any(|entry| {
        let entry = entry.as_ref().to_ascii_lowercase();
        entry == pattern || entry.strip_prefix('*').is_some_and(|suffix| end.ends_with(suffix))
    })
}

/// The network of a spec in words, for an event: its preset, and how many hosts beyond it. A spec without a preset means
/// `dev`.
#[must_use]
pub fn describe(spec: &Json) -> String {
    let network = &spec["network"];
    let preset = network["preset"].as_str().unwrap_or("dev");
    let hosts = network["allow"].as_array().into_iter().flatten().filter_map(Json::as_str);
    let hosts: BTreeSet<String> = hosts.map(str::to_ascii_lowercase).collect();
    let beyond = |host: &&String| preset != "dev" || !DEV_HOSTS.contains(&host.as_str());
    match hosts.iter().filter(beyond).count() {
        0 => preset.to_owned(),
        extra => format!("{preset} +{extra} host(s)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::manifest::is_host_pattern;
    use serde_json::json;

    #[test]
    fn a_ceiling_lets_names_and_patterns_below_its_patterns_through() {
        let ceiling = ["api.example.com", "*.Cdn.example", "*.example.org"];
        for inside in
            ["api.example.com", "API.example.com", "a.cdn.example", "*.cdn.example", "*.x.example.org"]
        {
            assert!(ceiling_allows(&ceiling, inside), "{inside}");
        }
        for outside in [
            "example.com",
            "*.example.com",
            "cdn.example",
            "xcdn.example",
            "example.org",
            "*.org",
            "*.ample.org",
        ] {
            assert!(!ceiling_allows(&ceiling, outside), "{outside}");
        }
        assert!(!ceiling_allows::<&str>(&[], "a.b"));
    }

    #[test]
    fn a_network_is_told_by_its_preset_and_the_hosts_beyond_it() {
        for (network, words) in [
            (json!({"preset": "none"}), "none"),
            (json!({"preset": "none", "allow": ["a.x", "A.x", "*.b.x", "github.com"]}), "none +3 host(s)"),
            (json!({}), "dev"),
            (json!({"allow": ["GitHub.com"]}), "dev"),
            (json!({"preset": "dev", "allow": ["github.com", "a.x"]}), "dev +1 host(s)"),
            (json!({"preset": "open"}), "open"),
        ] {
            assert_eq!(describe(&json!({"network": network})), words);
        }
        assert_eq!(describe(&json!({})), "dev");
    }

    #[test]
    fn the_hosts_of_dev_are_host_names() {
        assert!(DEV_HOSTS.iter().all(|host| is_host_pattern(host) && !host.starts_with('*')));
    }
}
