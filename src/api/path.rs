//! Request paths: split once, each segment percent-decoded, matched by us and by nobody else, so that what is served
//! does not depend on a framework's ideas of slashes and escapes (spec: http-api, sections 1.2 and 1.3).

use std::borrow::Cow;

/// A request's path.
pub(super) struct Path<'a> {
    /// Segments after the first slash, decoded; empty ones are kept.
    segments: Vec<Cow<'a, str>>,
    /// Whether a segment could not be decoded. It is kept as it was sent.
    malformed: bool,
}

impl<'a> Path<'a> {
    /// `None` when the target is not a path (`*`, an authority).
    pub fn read(raw: &'a str) -> Option<Self> {
        let rest = raw.strip_prefix('/')?;
        let mut malformed = false;
        let segments = rest
            .split('/')
            .map(|segment| {
                decode(segment).unwrap_or_else(|| {
                    malformed = true;
                    Cow::Borrowed(segment)
                })
            })
            .collect();
        Some(Self { segments, malformed })
    }

    pub fn is_malformed(&self) -> bool {
        self.malformed
    }

    /// Whether the path is exactly this.
    pub fn is(&self, pattern: &str) -> bool {
        self.matches(pattern).is_some()
    }

    /// Whether it belongs to the Tenant's or the operator's API, empty segments aside.
    pub fn is_v1(&self) -> bool {
        self.filled().next() == Some("v1")
    }

    /// Whether it belongs to the operator's API, empty segments aside: `/v1//admin/x` is as secret as `/v1/admin/x`.
    pub fn is_operator(&self) -> bool {
        let mut filled = self.filled();
        filled.next() == Some("v1") && filled.next() == Some("admin")
    }

    fn filled(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().map(AsRef::as_ref).filter(|segment: &&str| !segment.is_empty())
    }

    /// The values of a pattern's `{names}` in order, or `None` when the path is another one. A name never stands for
    /// an empty segment.
    pub fn matches(&self, pattern: &str) -> Option<Vec<String>> {
        let mut values = Vec::new();
        let mut segments = self.segments.iter();
        for part in pattern.strip_prefix('/')?.split('/') {
            let segment = segments.next()?;
            if part.starts_with('{') {
                if segment.is_empty() {
                    return None;
                }
                values.push(segment.to_string());
            } else if segment != part {
                return None;
            }
        }
        segments.next().is_none().then_some(values)
    }
}

/// Decodes percent escapes into UTF-8; `None` when an escape is broken or the bytes are not UTF-8.
pub(super) fn decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let high = char::from(bytes.next()?).to_digit(16)?;
            let low = char::from(bytes.next()?).to_digit(16)?;
            out.push(u8::try_from(high << 4 | low).ok()?);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok().map(Cow::Owned)
}

/// The path as the log may show it: ids of sessions are cut out, and tokens of links in whatever spelling.
pub(super) fn for_log(raw: &str) -> Cow<'_, str> {
    let mut filled = raw.split('/').filter(|segment| !segment.is_empty());
    let mut is = |name: &str| filled.next().and_then(decode).is_some_and(|segment| segment == name);
    if is("v1") && is("artifact-links") {
        return Cow::Borrowed("/v1/artifact-links/:token");
    }
    match raw.strip_prefix("/v1/sessions/") {
        None | Some("") => Cow::Borrowed(raw),
        Some(rest) if rest.contains('/') => Cow::Borrowed("/v1/sessions/:id/…"),
        Some(_) => Cow::Borrowed("/v1/sessions/:id"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(raw: &str, pattern: &str) -> Option<Vec<String>> {
        Path::read(raw).expect(raw).matches(pattern)
    }

    #[test]
    fn each_segment_is_decoded_by_itself() {
        let pattern = "/v1/sessions/{id}/items";
        assert_eq!(values("/v1/sessions/a%2Fb/items", pattern), Some(vec!["a/b".to_owned()]));
        assert_eq!(values("/v1/sessions/%C3%A9/items", pattern), Some(vec!["é".to_owned()]));
        assert_eq!(values("/v1/sessions/a+b/items", pattern), Some(vec!["a+b".to_owned()]));
        assert_eq!(values("/%76%31/sessions/a/items", pattern), Some(vec!["a".to_owned()]));
    }

    #[test]
    fn slashes_count() {
        for other in ["/v1/sessions/a/", "/v1//sessions/a", "/v1/sessions/", "/v1/sessions//", "/v1/sessions"]
        {
            assert_eq!(values(other, "/v1/sessions/{id}"), None, "{other}");
        }
        assert!(Path::read("/health").is_some_and(|p| p.is("/health")));
        assert!(!Path::read("/health/").is_some_and(|p| p.is("/health")));
    }

    #[test]
    fn broken_escapes_are_noticed_and_never_panic() {
        for bad in ["/v1/%", "/v1/%4", "/v1/%zz", "/v1/%ff", "/v1/%+1", "/v1/%é"] {
            assert!(Path::read(bad).expect(bad).is_malformed(), "{bad}");
        }
        assert!(!Path::read("/v1/%25").expect("a path").is_malformed());
        assert!(Path::read("*").is_none());
    }

    #[test]
    fn operator_paths_are_recognised_in_any_spelling() {
        for operator in
            ["/v1/admin", "/v1/admin/", "/v1//admin/x", "//v1/admin/x", "/v1/%61dmin/x", "/v1/admin/%zz"]
        {
            assert!(Path::read(operator).expect(operator).is_operator(), "{operator}");
        }
        for other in ["/v1/administrators", "/v1/sessions/admin", "/admin", "/v1"] {
            assert!(!Path::read(other).expect(other).is_operator(), "{other}");
        }
    }

    #[test]
    fn the_log_shows_no_session_ids() {
        assert_eq!(for_log("/v1/sessions"), "/v1/sessions");
        assert_eq!(for_log("/v1/sessions/"), "/v1/sessions/");
        assert_eq!(for_log("/v1/sessions/s-1"), "/v1/sessions/:id");
        assert_eq!(for_log("/v1/sessions/s-1/commands"), "/v1/sessions/:id/…");
        assert_eq!(for_log("/v1/agents/a"), "/v1/agents/a");
    }

    #[test]
    fn the_log_shows_no_token_of_a_link() {
        for raw in [
            "/v1/artifact-links/a.b.c",
            "/v1/%61rtifact-links/a.b.c",
            "//v1/artifact-links//a.b.c/",
            "/%76%31/artifact-links/a.b.c/x",
            "/v1/artifact-links/%zz",
        ] {
            assert_eq!(for_log(raw), "/v1/artifact-links/:token", "{raw}");
        }
        assert_eq!(for_log("/v1/artifacts/af_1/links"), "/v1/artifacts/af_1/links");
    }
}
