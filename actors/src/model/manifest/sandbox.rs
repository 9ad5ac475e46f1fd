//! What a sandbox is declared with, and the patterns of its values (spec: engine, section 1.4; sandbox, section 2).

use super::reader::{Reader, no_hint};
use crate::model::json::Json;

/// The tools that a capability with a sandbox must list.
pub const SANDBOX_TOOLS: [&str; 6] = ["bash", "read", "write", "edit", "grep", "glob"];

/// Hosts that a sandbox may reach before its own list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkPreset {
    /// None.
    None,
    /// The package registries and code hosts of the sandbox page.
    Dev,
    /// All.
    Open,
}

/// A sandbox as a manifest declares it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SandboxManifest {
    /// OCI reference.
    pub image: Option<String>,
    /// Absent means `dev`.
    pub preset: Option<NetworkPreset>,
    /// Host names and `*.` patterns, as written.
    pub allow: Vec<String>,
    /// CPUs, 1 to 64.
    pub cpus: Option<u32>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Milliseconds without use after which it stops.
    pub idle_ms: Option<u64>,
}

impl SandboxManifest {
    pub(super) fn read<'a>(reader: &mut Reader<'a>, value: &'a Json) -> Option<Self> {
        let map = reader.object(value, &["image", "network", "resources", "idle"], no_hint)?;
        reader.sandbox(value);
        let mut sandbox = Self { image: reader.optional(map, "image", Reader::name), ..Self::default() };
        reader.optional(map, "network", |reader, network| {
            let network = reader.object(network, &["preset", "allow"], no_hint)?;
            let presets =
                [("none", NetworkPreset::None), ("dev", NetworkPreset::Dev), ("open", NetworkPreset::Open)];
            sandbox.preset =
                reader.optional(network, "preset", |reader, preset| reader.word(preset, &presets));
            let hosts = reader.optional(network, "allow", |reader, allow| reader.list(allow, host));
            sandbox.allow = hosts.unwrap_or_default();
            Some(())
        });
        reader.optional(map, "resources", |reader, resources| {
            let resources = reader.object(resources, &["cpus", "memory"], no_hint)?;
            sandbox.cpus = reader.optional(resources, "cpus", |reader, cpus| reader.integer(cpus, 1, 64));
            let expected = "a size such as \"512MiB\" or \"2GiB\"";
            let size = |reader: &mut Reader<'a>, text| measure(reader, text, parse_size_bytes, expected);
            sandbox.memory_bytes = reader.optional(resources, "memory", size);
            Some(())
        });
        sandbox.idle_ms = reader.optional(map, "idle", |reader, idle| {
            measure(reader, idle, parse_duration_ms, "a duration such as \"30s\", \"15m\" or \"1h\"")
        });
        Some(sandbox)
    }
}

fn host<'a>(reader: &mut Reader<'a>, value: &'a Json) -> Option<String> {
    let text = reader.text(value)?;
    if !is_host_pattern(&text) {
        reader
            .issue("invalid_format", "must be a host name or a \"*.\" pattern, without scheme, port or path");
        return None;
    }
    Some(text)
}

fn measure<'a>(
    reader: &mut Reader<'a>,
    value: &'a Json,
    parse: fn(&str) -> Option<u64>,
    expected: &str,
) -> Option<u64> {
    let text = reader.text(value)?;
    let parsed = parse(&text);
    if parsed.is_none() {
        reader.issue("invalid_format", format!("must be {expected}"));
    }
    parsed
}

/// Milliseconds of a duration: digits and `ms`, `s`, `m`, `h` or `d`, more than zero.
#[must_use]
pub fn parse_duration_ms(text: &str) -> Option<u64> {
    quantity(text, &[("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)])
}

/// Bytes of a size: digits and `B`, `KiB`, `MiB`, `GiB` or `TiB`, more than zero.
#[must_use]
pub fn parse_size_bytes(text: &str) -> Option<u64> {
    quantity(text, &[("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)])
}

fn quantity(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let (digits, unit) = text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    digits.parse::<u64>().ok()?.checked_mul(*factor).filter(|value| *value > 0)
}

/// Whether `text` is a host name of at least two labels, or `*.` and one. Not an IPv4 address.
#[must_use]
pub fn is_host_pattern(text: &str) -> bool {
    let host = text.strip_prefix("*.").unwrap_or(text);
    let label = |label: &str| {
        let bytes = label.as_bytes();
        (1..=63).contains(&bytes.len())
            && bytes.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-')
            && bytes[0] != b'-'
            && bytes[bytes.len() - 1] != b'-'
    };
    host.len() <= 253
        && host.contains('.')
        && host.split('.').all(label)
        && !host.split('.').all(|label| label.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_digits_and_a_unit_and_more_than_zero() {
        for (text, ms) in
            [("30s", 30_000), ("15m", 900_000), ("1h", 3_600_000), ("2d", 172_800_000), (" 5ms ", 5)]
        {
            assert_eq!(parse_duration_ms(text), Some(ms), "{text}");
        }
        for bad in [
            "",
            "s",
            "0s",
            "1",
            "1.5h",
            "-1s",
            "1 s",
            "1S",
            "1w",
            "99999999999999999999s",
            "18446744073709551615d",
        ] {
            assert_eq!(parse_duration_ms(bad), None, "{bad}");
        }
    }

    #[test]
    fn sizes_are_digits_and_a_binary_unit() {
        for (text, bytes) in [("512MiB", 512 << 20), ("2GiB", 2 << 30), ("1B", 1), ("1TiB", 1 << 40)] {
            assert_eq!(parse_size_bytes(text), Some(bytes), "{text}");
        }
        for bad in ["", "0MiB", "512", "512MB", "512mib", "1.5GiB", "GiB", "99999999999TiB"] {
            assert_eq!(parse_size_bytes(bad), None, "{bad}");
        }
    }

    #[test]
    fn host_patterns_are_names_of_two_labels_or_wildcards_above_them() {
        for good in ["example.com", "*.example.com", "EXAMPLE.com", "1.example", "a-b.c", "xn--a.b"] {
            assert!(is_host_pattern(good), "{good}");
        }
        let (long_label, long) = (format!("{}.com", "a".repeat(64)), "a.".repeat(126) + "aa");
        assert!(!is_host_pattern(&long) && is_host_pattern(&long[1..].replace(".a.", ".b.")[1..]));
        for bad in [
            "",
            "localhost",
            "*",
            "*.",
            "*.com",
            "a.*.com",
            "127.0.0.1",
            "10.1",
            "http://a.b",
            "a.b:80",
            "a.b/c",
            "-a.b",
            "a-.b",
            "a..b",
            ".a.b",
            "a.b.",
            "a_b.c",
            "é.fr",
            &long_label,
        ] {
            assert!(!is_host_pattern(bad), "{bad}");
        }
    }
}
