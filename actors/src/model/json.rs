//! JSON as it comes and goes: every string a peer may send survives, lone surrogates included.
//!
//! Rust strings hold no lone surrogates, JavaScript's do, and a peer may send one as `"\ud800"`. Such an escape
//! is kept inside our strings as [`MARK`] and four hexadecimal digits, and turned back when text is written; a
//! literal [`MARK`] is kept as `MARK` and `----`. Everything that leaves the process must therefore be written by
//! this module.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Any JSON value.
pub type Json = serde_json::Value;

/// A JSON object.
pub type JsonMap = serde_json::Map<String, Json>;

/// JSON text that is passed on as it is: what the store keeps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JsonText(Arc<str>);

impl JsonText {
    /// The text of a value.
    #[must_use]
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Self {
        Self(Arc::from(encode(value)))
    }

    /// Takes text that is known to be JSON (our own store's, or [`encode`]'s).
    #[must_use]
    pub fn from_trusted(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The value.
    ///
    /// # Errors
    /// When the text does not fit `T`.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        decode(self.0.as_bytes())
    }
}

/// The noncharacter that stands before a kept surrogate.
pub const MARK: char = '\u{10FFFE}';
const MARK_UTF8: &[u8] = "\u{10FFFE}".as_bytes();

/// Parses JSON text.
///
/// # Errors
/// When the text is not JSON or does not fit `T`.
pub fn decode<T: DeserializeOwned>(text: &[u8]) -> Result<T, serde_json::Error> {
    match keep_surrogates(text) {
        Cow::Borrowed(text) => serde_json::from_slice(text),
        Cow::Owned(text) => serde_json::from_slice(&text),
    }
}

/// Parses JSON text into any value.
///
/// # Errors
/// When the text is not JSON.
pub fn parse(text: &[u8]) -> Result<Json, serde_json::Error> {
    decode(text)
}

/// Writes a value as JSON text without white space. Values whose maps have keys other than strings do not occur here.
#[must_use]
pub fn encode<T: Serialize + ?Sized>(value: &T) -> String {
    let text = serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned());
    restore_surrogates(text)
}

/// Gives kept surrogates their escapes back in JSON text that `serde_json` wrote.
#[must_use]
pub fn restore_surrogates(text: String) -> String {
    if !contains(text.as_bytes(), MARK_UTF8) {
        return text;
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find(MARK) {
        out.push_str(&rest[..at]);
        rest = &rest[at + MARK.len_utf8()..];
        match rest.get(..4) {
            Some("----") => out.push(MARK),
            Some(hex) => {
                out.push_str("\\u");
                out.push_str(hex);
            }
            None => out.push(MARK),
        }
        rest = rest.get(4..).unwrap_or("");
    }
    out.push_str(rest);
    out
}

fn contains(text: &[u8], needle: &[u8]) -> bool {
    text.windows(needle.len()).any(|w| w == needle)
}

/// Replaces escapes of lone surrogates, and literal marks, by their kept form. Borrowed when there are none.
fn keep_surrogates(text: &[u8]) -> Cow<'_, [u8]> {
    let suspicious = text.windows(3).any(|w| w[0] == b'\\' && w[1] == b'u' && (w[2] | 32) == b'd')
        || contains(text, MARK_UTF8)
        || contains(text, b"\\u");
    if !suspicious {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len() + 16);
    let mut at = 0;
    while at < text.len() {
        if text[at] == b'\\' {
            let Some(unit) = escaped_unit(text, at) else {
                out.extend_from_slice(&text[at..text.len().min(at + 2)]);
                at += 2;
                continue;
            };
            match unit {
                0xD800..=0xDBFF => match escaped_unit(text, at + 6) {
                    // An escaped mark (U+10FFFE is \udbff\udffe) is kept like a literal one.
                    Some(0xDFFE) if unit == 0xDBFF => {
                        out.extend_from_slice(MARK_UTF8);
                        out.extend_from_slice(b"----");
                        at += 12;
                    }
                    Some(0xDC00..=0xDFFF) => {
                        out.extend_from_slice(&text[at..at + 12]);
                        at += 12;
                    }
                    _ => {
                        keep(&mut out, unit);
                        at += 6;
                    }
                },
                0xDC00..=0xDFFF => {
                    keep(&mut out, unit);
                    at += 6;
                }
                _ => {
                    out.extend_from_slice(&text[at..at + 6]);
                    at += 6;
                }
            }
        } else if text[at..].starts_with(MARK_UTF8) {
            out.extend_from_slice(MARK_UTF8);
            out.extend_from_slice(b"----");
            at += MARK_UTF8.len();
        } else {
            out.push(text[at]);
            at += 1;
        }
    }
    Cow::Owned(out)
}

fn keep(out: &mut Vec<u8>, unit: u16) {
    out.extend_from_slice(MARK_UTF8);
    out.extend_from_slice(format!("{unit:04x}").as_bytes());
}

/// The UTF-16 unit of a `\uXXXX` escape at `at`, if there is one.
fn escaped_unit(text: &[u8], at: usize) -> Option<u16> {
    let escape = text.get(at..at + 6)?;
    if &escape[..2] != b"\\u" || !escape[2..].iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u16::from_str_radix(std::str::from_utf8(&escape[2..]).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(text: &str) -> String {
        encode(&parse(text.as_bytes()).expect(text))
    }

    #[test]
    fn lone_surrogates_nul_and_marks_survive_a_round_trip() {
        for text in
            [r#""\ud800""#, r#""a\udc00b""#, r#"{"\ud834x":"\u0000"}"#, r#""\ud800\ud800""#, r#""\\ud800""#]
        {
            assert_eq!(round(text), text);
        }
        assert_eq!(round(r#""\ud83d\ude00""#), "\"\u{1F600}\"");
        assert_eq!(round("\"\u{10FFFE}d800\""), "\"\u{10FFFE}d800\"");
        assert_eq!(round(r#""\udbff\udffe""#), "\"\u{10FFFE}\"");
    }

    #[test]
    fn text_that_is_not_json_is_refused_not_repaired() {
        for bad in [r#""\u12""#, r#""\"#, "{", "nul", r#""\x""#] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
