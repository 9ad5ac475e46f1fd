//! The hosts that a sandbox may reach, and where a request wants to go (spec: sandbox, sections 2, 3 and 17).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// Longest host name, characters.
const NAME_CHARS: usize = 253;
/// Longest label of one, characters.
const LABEL_CHARS: usize = 63;

/// Hosts by name, and by what their names end with. Empty: none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allow {
    hosts: BTreeSet<String>,
    /// Each with its leading dot.
    suffixes: BTreeSet<String>,
}

impl Allow {
    /// The hosts of patterns: a name, or `*.` and what a name ends with.
    #[must_use]
    pub fn of<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Self {
        let mut allow = Self::default();
        for pattern in patterns {
            let pattern = pattern.to_ascii_lowercase();
            match pattern.strip_prefix('*') {
                Some(suffix) => allow.suffixes.insert(suffix.to_owned()),
                None => allow.hosts.insert(pattern),
            };
        }
        allow
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty() && self.suffixes.is_empty()
    }

    /// Whether a name, in lower case, is one of them. `*.a.example` is not `a.example` itself.
    #[must_use]
    pub fn has(&self, host: &str) -> bool {
        self.hosts.contains(host)
            || self.suffixes.iter().any(|suffix| {
                suffix.starts_with('.') && host.len() > suffix.len() && host.ends_with(suffix.as_str())
            })
    }
}

/// Where a request wants to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The name: lower case, without the dot at its end.
    pub host: String,
    /// The port.
    pub port: u16,
    /// What is asked for there; only for a request without a tunnel.
    pub path: String,
}

impl Target {
    /// Of a tunnel: `host:port`.
    #[must_use]
    pub fn authority(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let port =
            if port.bytes().all(|byte| byte.is_ascii_digit()) { port.parse().ok()? } else { return None };
        Self::new(host, port, "")
    }

    /// Of a plain request: `http://host[:port]/path`.
    #[must_use]
    pub fn url(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        if !scheme.eq_ignore_ascii_case("http") {
            return None;
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let path = path.split('#').next().unwrap_or_default();
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let port_at = authority.rfind(':').filter(|at| !authority[*at..].contains(']'));
        match port_at {
            Some(_) => Self::authority(authority).map(|target| Self { path, ..target }),
            None => Self::new(authority, 80, &path),
        }
    }

    fn new(host: &str, port: u16, path: &str) -> Option<Self> {
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        let odd = |byte: u8| byte.is_ascii_control() || matches!(byte, b' ' | b'@' | b'/' | b'\\');
        if host.is_empty() || port == 0 || host.bytes().any(odd) {
            return None;
        }
        Some(Self { host, port, path: path.to_owned() })
    }

    /// Whether the host is a name of a host: no address in any spelling, no pattern, no single label.
    #[must_use]
    pub fn is_name(&self) -> bool {
        let labels: Vec<&str> = self.host.split('.').collect();
        let label = |text: &&str| {
            (1..=LABEL_CHARS).contains(&text.len())
                && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
                && !text.starts_with('-')
                && !text.ends_with('-')
        };
        // Resolvers read `127.1` and `0x7f.1` as addresses; no name of the internet ends in a number.
        let number = |text: &&str| {
            text.bytes().all(|byte| byte.is_ascii_digit())
                || text.strip_prefix("0x").is_some_and(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
        };
        self.host.len() <= NAME_CHARS
            && labels.len() >= 2
            && labels.iter().all(label)
            && !labels.last().is_some_and(number)
    }

    /// What a `Host` header says of it.
    #[must_use]
    pub fn host_header(&self) -> String {
        if self.port == 80 { self.host.clone() } else { format!("{}:{}", self.host, self.port) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_reached_by_its_name_or_what_it_ends_with_and_a_suffix_is_not_itself() {
        let allow = Allow::of(["Example.TEST", "*.b.test"]);
        for host in ["example.test", "a.b.test", "c.a.b.test"] {
            assert!(allow.has(host), "{host}");
        }
        for host in ["a.example.test", "b.test", "xb.test", ".b.test", "example.tes", ""] {
            assert!(!allow.has(host), "{host}");
        }
        assert!(Allow::of([]).is_empty() && !Allow::of(["*.b.test"]).is_empty());
        assert!(!Allow::of(["*", "*test"]).has("a.test"), "a star stands for whole labels only");
    }

    #[test]
    fn a_tunnels_target_is_a_host_and_a_port() {
        let target = |text| Target::authority(text).map(|target| (target.host, target.port));
        assert_eq!(target("A.Test.:443"), Some(("a.test".into(), 443)));
        assert_eq!(target("[::1]:80"), Some(("[::1]".into(), 80)));
        for bad in
            ["a.test", "a.test:", ":443", "a.test:0", "a.test:65536", "a.test:+80", "a@b.test:80", "a b:80"]
        {
            assert_eq!(target(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_plain_requests_target_is_a_url() {
        let target = |text| Target::url(text).map(|target| (target.host, target.port, target.path));
        assert_eq!(target("http://A.test/x?y#z"), Some(("a.test".into(), 80, "/x?y".into())));
        assert_eq!(target("HTTP://a.test:443"), Some(("a.test".into(), 443, "/".into())));
        assert_eq!(target("http://a.test?q=/"), Some(("a.test".into(), 80, "/?q=/".into())));
        assert_eq!(target("http://[::1]/"), Some(("[::1]".into(), 80, "/".into())));
        for bad in
            ["https://a.test/", "/x", "ftp://a.test/", "http://u:p@a.test/", "http://", "http://a.test:x/"]
        {
            assert_eq!(target(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_address_in_any_spelling_is_no_name() {
        let name = |host: &str| Target::new(host, 443, "").is_some_and(|target| target.is_name());
        for good in ["a.test", "xn--bcher-kva.example", "1.example", "a-b.c-d.e1", "3com.test"] {
            assert!(name(good), "{good}");
        }
        for bad in [
            "127.0.0.1",
            "127.1",
            "2130706433",
            "0x7f.1",
            "0x7f.0.0.0x1",
            "a.0x7f",
            "a.1",
            "[::1]",
            "::1",
            "localhost",
            "*.a.test",
            "-a.test",
            "a-.test",
            "a..test",
            "a_b.test",
            "bücher.test",
        ] {
            assert!(!name(bad), "{bad}");
        }
        assert!(!name(&format!("{}.test", "a".repeat(64))) && !name(&format!("{}test", "a.".repeat(125))));
    }
}
