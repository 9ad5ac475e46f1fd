//! Hosts: those of the `dev` preset, what a ceiling lets through, and a network in words (spec: sandbox, sections 2, 3
//! and 5).

use crate::model::manifest::{NetworkPreset, SandboxManifest};

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
        entry == pattern || entry.strip_prefix('*').is_some_and(|suffix| end.ends_with(suffix) && end != "*")
    })
}

/// What a sandbox may reach: names, and ends of names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvedNetwork {
    /// Exact names, sorted.
    pub hosts: Vec<String>,
    /// Each begins with a dot; sorted.
    pub suffixes: Vec<String>,
    /// Everything but private ranges.
    pub open: bool,
}

impl ResolvedNetwork {
    /// The network of a spec. A spec without a preset means `dev`.
    #[must_use]
    pub fn of(spec: &SandboxManifest) -> Self {
        let preset = spec.preset.unwrap_or(NetworkPreset::Dev);
        let mut network = Self { open: preset == NetworkPreset::Open, ..Self::default() };
        if preset == NetworkPreset::Dev {
            network.hosts.extend(DEV_HOSTS.map(str::to_owned));
        }
        for entry in spec.allow.iter().map(|entry| entry.to_ascii_lowercase()) {
            match entry.strip_prefix('*') {
                Some(suffix) => network.suffixes.push(suffix.to_owned()),
                None => network.hosts.push(entry),
            }
        }
        for list in [&mut network.hosts, &mut network.suffixes] {
            list.sort_unstable();
            list.dedup();
        }
        network
    }

    /// In words, for an event: the preset, and how many hosts beyond it.
    #[must_use]
    pub fn describe(&self, preset: NetworkPreset) -> String {
        let name = match preset {
            NetworkPreset::None => "none",
            NetworkPreset::Dev => "dev",
            NetworkPreset::Open => "open",
        };
        let own = if preset == NetworkPreset::Dev { DEV_HOSTS.len() } else { 0 };
        match (self.hosts.len() + self.suffixes.len()).saturating_sub(own) {
            0 => name.to_owned(),
            extra => format!("{name} +{extra} host(s)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::manifest::is_host_pattern;

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
    fn a_network_is_its_preset_and_its_own_hosts_sorted_and_once() {
        let spec = |preset, allow: &[&str]| SandboxManifest {
            preset,
            allow: allow.iter().map(|host| (*host).to_owned()).collect(),
            ..SandboxManifest::default()
        };
        let none = ResolvedNetwork::of(&spec(Some(NetworkPreset::None), &["B.x", "a.x", "b.X", "*.Y.z"]));
        assert_eq!(
            (none.hosts, none.suffixes),
            (vec!["a.x".to_owned(), "b.x".into()], vec![".y.z".to_owned()])
        );
        let dev = ResolvedNetwork::of(&spec(None, &["github.com", "a.x"]));
        assert_eq!(dev.hosts.len(), DEV_HOSTS.len() + 1);
        assert_eq!(dev.describe(NetworkPreset::Dev), "dev +1 host(s)");
        assert_eq!(ResolvedNetwork::of(&spec(None, &[])).describe(NetworkPreset::Dev), "dev");
        assert!(ResolvedNetwork::of(&spec(Some(NetworkPreset::Open), &[])).open);
    }

    #[test]
    fn the_hosts_of_dev_are_host_names() {
        assert!(DEV_HOSTS.iter().all(|host| is_host_pattern(host) && !host.starts_with('*')));
    }
}
