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
    if !text.contains(MARK) {
        return text;
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find(MARK) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        match kept_at(rest) {
            Kept::Mark => out.push(MARK),
            Kept::Unit(_) => {
                out.push_str("\\u");
                out.push_str(&rest[MARK_UTF8.len()..KEPT_LEN]);
            }
            Kept::Stray => {
                out.push(MARK);
                rest = &rest[MARK_UTF8.len()..];
                continue;
            }
        }
        rest = &rest[KEPT_LEN..];
    }
    out.push_str(rest);
    out
}

/// Bytes of a kept surrogate or a kept mark inside our strings.
pub(crate) const KEPT_LEN: usize = 8;

/// What a [`MARK`] inside one of our strings stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// The mark itself, which a peer sent.
    Mark,
    /// A lone surrogate.
    Unit(u16),
    /// A mark that did not come through [`decode`]: text of our own. It stands for itself and is 4 bytes long.
    Stray,
}

/// Reads what `text`, which starts with [`MARK`], stands for.
pub(crate) fn kept_at(text: &str) -> Kept {
    match text.as_bytes().get(MARK_UTF8.len()..KEPT_LEN) {
        Some(b"----") => Kept::Mark,
        Some(hex @ [b'd', b'8'..=b'9' | b'a'..=b'f', ..]) => hex_unit(hex).map_or(Kept::Stray, Kept::Unit),
        _ => Kept::Stray,
    }
}

/// Text for whoever takes UTF-8 alone: a kept lone surrogate becomes U+FFFD, a kept mark itself.
#[must_use]
pub fn well_formed(text: &str) -> Cow<'_, str> {
    if !text.contains(MARK) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(MARK) {
        out.push_str(&rest[..at]);
        let kept = kept_at(&rest[at..]);
        out.push(if matches!(kept, Kept::Unit(_)) { char::REPLACEMENT_CHARACTER } else { MARK });
        rest = &rest[at + if kept == Kept::Stray { MARK.len_utf8() } else { KEPT_LEN }..];
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// The UTF-16 code units that `text` has for a JavaScript peer: kept surrogates count as the one unit they are.
pub fn utf16_units(text: &str) -> impl Iterator<Item = u16> + '_ {
    let mut rest = text;
    let mut low = None;
    std::iter::from_fn(move || {
        if let Some(low) = low.take() {
            return Some(low);
        }
        let c = rest.chars().next()?;
        let kept = if c == MARK { kept_at(rest) } else { Kept::Stray };
        rest = &rest[if kept == Kept::Stray { c.len_utf8() } else { KEPT_LEN }..];
        if let Kept::Unit(unit) = kept {
            return Some(unit);
        }
        let mut pair = [0; 2];
        let pair = c.encode_utf16(&mut pair);
        low = pair.get(1).copied();
        Some(pair[0])
    })
}

/// Replaces escapes of lone surrogates, and literal marks, by their kept form. Borrowed when there are none.
fn keep_surrogates(text: &[u8]) -> Cow<'_, [u8]> {
    let suspicious = text.iter().enumerate().any(|(at, byte)| match byte {
        b'\\' => matches!(text.get(at + 1..at + 3), Some([b'u', b'd' | b'D'])),
        0xF4 => text[at..].starts_with(MARK_UTF8),
        _ => false,
    });
    if !suspicious {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len() + 16);
    let mut at = 0;
    while at < text.len() {
        // Whatever is neither an escape nor a mark is copied in one piece.
        let plain = text[at..].iter().take_while(|b| **b != b'\\' && **b != 0xF4).count();
        out.extend_from_slice(&text[at..at + plain]);
        at += plain;
        let Some(byte) = text.get(at) else { break };
        if *byte == 0xF4 {
            if text[at..].starts_with(MARK_UTF8) {
                out.extend_from_slice(MARK_UTF8);
                out.extend_from_slice(b"----");
                at += MARK_UTF8.len();
            } else {
                out.push(*byte);
                at += 1;
            }
            continue;
        }
        let Some(unit) = escaped_unit(text, at) else {
            out.extend_from_slice(&text[at..text.len().min(at + 2)]);
            at += 2;
            continue;
        };
        let length = match (unit, escaped_unit(text, at + 6)) {
            // An escaped mark (U+10FFFE is \udbff\udffe) is kept like a literal one.
            (0xDBFF, Some(0xDFFE)) => {
                out.extend_from_slice(MARK_UTF8);
                out.extend_from_slice(b"----");
                at += 12;
                continue;
            }
            (0xD800..=0xDBFF, Some(0xDC00..=0xDFFF)) => 12,
            (0xD800..=0xDFFF, _) => {
                keep(&mut out, unit);
                at += 6;
                continue;
            }
            _ => 6,
        };
        out.extend_from_slice(&text[at..at + length]);
        at += length;
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
    if &escape[..2] != b"\\u" {
        return None;
    }
    hex_unit(&escape[2..])
}

/// Four hexadecimal digits as a number.
fn hex_unit(hex: &[u8]) -> Option<u16> {
    hex.iter().try_fold(0, |unit: u16, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        Some(unit << 4 | u16::try_from(digit).ok()?)
    })
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
    fn marks_of_our_own_text_never_break_the_json_around_them() {
        for text in [
            "\u{10FFFE}",
            "\u{10FFFE}abc",
            "\u{10FFFE}zzzz",
            "\u{10FFFE}é\u{10FFFE}",
            "\u{10FFFE}d7ff",
            "\u{10FFFE}\"",
        ] {
            let written = encode(&vec![text, "next"]);
            let read: Vec<String> = serde_json::from_str(&written).expect(&written);
            assert_eq!(read, [text, "next"]);
        }
    }

    #[test]
    fn text_without_lone_surrogates_is_what_was_meant_and_the_same_where_there_are_none() {
        let text = |json: &str| well_formed(&decode::<String>(json.as_bytes()).expect(json)).into_owned();
        assert_eq!(text(r#""a\ud800b\udfff""#), "a\u{FFFD}b\u{FFFD}");
        assert_eq!(text("\"\u{10FFFE}d800\""), "\u{10FFFE}d800");
        assert_eq!(well_formed("\u{10FFFE}x"), "\u{10FFFE}x");
        assert!(matches!(well_formed("é"), Cow::Borrowed("é")));
    }

    #[test]
    fn units_of_a_string_are_those_a_javascript_peer_counts() {
        let units = |json: &str| {
            let text: String = decode(json.as_bytes()).expect(json);
            utf16_units(&text).collect::<Vec<_>>()
        };
        assert_eq!(units(r#""a\ud800""#), [0x61, 0xD800]);
        assert_eq!(units(r#""\ud83d\ude00é""#), [0xD83D, 0xDE00, 0xE9]);
        assert_eq!(units("\"\u{10FFFE}d800\""), [0xDBFF, 0xDFFE, 0x64, 0x38, 0x30, 0x30]);
    }

    #[test]
    fn numbers_are_read_exactly() {
        for (text, value) in
            [("0.30000000000000004", 0.1 + 0.2), ("1.7976931348623157e308", f64::MAX), ("5e-324", 5e-324)]
        {
            assert_eq!(parse(text.as_bytes()).expect(text).as_f64(), Some(value));
        }
        // Read wrongly by a reader that rounds twice.
        let text = "9.4473300420336e-284";
        assert_eq!(
            parse(text.as_bytes()).expect(text).as_f64().map(f64::to_bits),
            text.parse().ok().map(f64::to_bits)
        );
    }

    #[test]
    fn members_keep_the_order_they_came_in() {
        assert_eq!(round(r#"{"b":1,"a":{"z":1,"y":2}}"#), r#"{"b":1,"a":{"z":1,"y":2}}"#);
    }

    proptest::proptest! {
        #[test]
        fn any_sequence_of_utf16_units_survives(units in proptest::collection::vec(unit(), 0..12)) {
            let json: String = units.iter().map(|u| format!("\\u{u:04x}")).collect();
            let text: String = decode(format!("\"{json}\"").as_bytes()).expect("a string");
            proptest::prop_assert_eq!(utf16_units(&text).collect::<Vec<_>>(), units.clone());
            let again: String = decode(encode(&text).as_bytes()).expect("a string");
            proptest::prop_assert_eq!(again, text);
        }
    }

    fn unit() -> impl proptest::strategy::Strategy<Value = u16> {
        use proptest::prelude::*;
        prop_oneof![
            any::<u16>(),
            0xD800..=0xDFFFu16,
            Just(0xDBFF),
            Just(0xDFFE),
            0x20..0x7Fu16,
            Just(0x64),
            Just(0x38)
        ]
    }

    #[test]
    fn text_that_is_not_json_is_refused_not_repaired() {
        for bad in [r#""\u12""#, r#""\"#, "{", "nul", r#""\x""#] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
