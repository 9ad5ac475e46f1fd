//! Canonical JSON in its two key orders, and the hashes made of it (spec: engine, sections 1.6 and 3.4;
//! harness-api, section 11.1; durability, section 2).
//!
//! The text is what a JavaScript peer computes for the same document: numbers and strings as ECMAScript's
//! `JSON.stringify` prints them, no white space, keys sorted by UTF-16 code unit (requests, idempotency) or by
//! `localeCompare` (manifests). It is written in pieces into a [`Sink`], so hashing never holds the whole text.

use std::cmp::Ordering;
use std::sync::OnceLock;

use icu_collator::{Collator, CollatorBorrowed, options::CollatorOptions};
use sha2::{Digest, Sha256};

use super::effect::{EffectIntent, EffectKind};
use super::json::{Json, JsonMap, KEPT_LEN, Kept, MARK, kept_at, utf16_units};

/// Takes canonical text piece by piece.
pub trait Sink {
    /// Takes the next piece.
    fn put(&mut self, text: &str);
}

impl Sink for String {
    fn put(&mut self, text: &str) {
        self.push_str(text);
    }
}

/// A SHA-256 under way.
#[derive(Clone, Debug, Default)]
pub struct Hasher(Sha256);

impl Hasher {
    /// A hash of nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the canonical text (keys by code unit) of a value.
    pub fn value(&mut self, value: &Json) {
        write_canonical(value, self);
    }

    /// The hash as 64 lowercase hexadecimal characters.
    #[must_use]
    pub fn finish(self) -> String {
        hex::encode(self.0.finalize())
    }
}

impl Sink for Hasher {
    fn put(&mut self, text: &str) {
        self.0.update(text.as_bytes());
    }
}

/// Canonical text with object keys sorted by UTF-16 code unit: for request hashes and idempotency comparisons.
#[must_use]
pub fn canonical(value: &Json) -> String {
    let mut out = String::new();
    write_canonical(value, &mut out);
    out
}

/// Canonical text with object keys sorted as JavaScript's `localeCompare` does: for manifest hashes.
///
/// Keys that collate equal (they differ only in characters that the collation ignores) keep the order of the
/// document, as they do for a peer.
#[must_use]
pub fn canonical_collated(value: &Json) -> String {
    let mut out = String::new();
    Writer::new(Order::Collated, &mut out).value(value);
    out
}

/// Writes what [`canonical`] returns.
pub fn write_canonical(value: &Json, sink: &mut impl Sink) {
    Writer::new(Order::CodeUnit, sink).value(value);
}

/// Writes a string as a JSON text that `JSON.stringify` would print.
pub fn write_string(text: &str, sink: &mut impl Sink) {
    sink.put("\"");
    let bytes = text.as_bytes();
    let mut start = 0;
    let mut at = 0;
    while at < bytes.len() {
        let byte = bytes[at];
        if byte >= 0x20 && byte != b'"' && byte != b'\\' && byte != 0xF4 {
            at += 1;
            continue;
        }
        if byte == 0xF4 {
            if !text[at..].starts_with(MARK) {
                at += 4;
                continue;
            }
            sink.put(&text[start..at]);
            at += write_kept(&text[at..], sink);
        } else {
            sink.put(&text[start..at]);
            write_escape(byte, sink);
            at += 1;
        }
        start = at;
    }
    sink.put(&text[start..]);
    sink.put("\"");
}

/// Lowercase hexadecimal SHA-256.
#[must_use]
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// The SHA-256 of the canonical text (keys by code unit).
#[must_use]
pub fn canonical_sha256(value: &Json) -> String {
    let mut hasher = Hasher::new();
    hasher.value(value);
    hasher.finish()
}

/// The identity of a manifest, agent or workflow: the SHA-256 of its collated canonical text.
#[must_use]
pub fn manifest_hash(manifest: &Json) -> String {
    let mut hasher = Hasher::new();
    Writer::new(Order::Collated, &mut hasher).value(manifest);
    hasher.finish()
}

/// Whether two values have the same canonical text. Neither text is built.
#[must_use]
pub fn canonical_eq(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Number(a), Json::Number(b)) => double(a) == double(b),
        (Json::Array(a), Json::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| canonical_eq(a, b))
        }
        (Json::Object(a), Json::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| canonical_eq(a, b)))
        }
        _ => a == b,
    }
}

/// The request hash of an effect that carries its whole `input`.
#[must_use]
pub fn request_hash(effect: &EffectIntent) -> String {
    let mut hasher = Hasher::new();
    write_request(effect, &mut hasher, effect.input.as_deref().map(|input| |h: &mut Hasher| h.value(input)));
    hasher.finish()
}

/// The request hash of an effect whose input `write_input` puts as canonical text: a model call's prompt, of which
/// most is known as text already. The effect's own `input` is not looked at.
#[must_use]
pub fn request_hash_with_input(effect: &EffectIntent, write_input: impl FnOnce(&mut Hasher)) -> String {
    let mut hasher = Hasher::new();
    write_request(effect, &mut hasher, Some(write_input));
    hasher.finish()
}

/// Writes an effect's members in code-unit order of their wire names; a new member of [`EffectIntent`] must be put in
/// its place here (a test compares this with the generic form).
fn write_request<S: Sink>(effect: &EffectIntent, sink: &mut S, input: Option<impl FnOnce(&mut S)>) {
    // Taking the type apart makes the compiler ask about members added later.
    let EffectIntent {
        effect_id,
        session_id,
        turn_id,
        agent_id,
        manifest_hash,
        kind,
        agent,
        capability_id,
        tool_name,
        hook,
        path,
        key,
        iterations,
        input: _,
        context,
    } = effect;
    sink.put("{");
    if let Some(agent) = agent {
        sink.put(r#""agent":{"#);
        optional("delegationId", agent.delegation_id.as_deref(), sink);
        member("id", &agent.id, sink);
        sink.put(r#","path":"#);
        write_string(&agent.path, sink);
        sink.put("},");
    }
    member("agentId", agent_id.as_str(), sink);
    sink.put(",");
    optional("capabilityId", capability_id.as_deref(), sink);
    if *kind != EffectKind::Delegation {
        sink.put(r#""context":"#);
        Writer::new(Order::CodeUnit, sink).object(context);
        sink.put(",");
    }
    member("effectId", effect_id.as_str(), sink);
    sink.put(",");
    if let Some(hook) = hook {
        sink.put(r#""hook":{"#);
        member("at", &hook.at, sink);
        sink.put(r#","capabilityIds":["#);
        for (i, id) in hook.capability_ids.iter().enumerate() {
            sink.put(if i == 0 { "" } else { "," });
            write_string(id, sink);
        }
        sink.put("],");
        member("scope", &hook.scope, sink);
        sink.put("},");
    }
    if let Some(input) = input {
        sink.put(r#""input":"#);
        input(sink);
        sink.put(",");
    }
    optional("iterations", iterations.as_deref(), sink);
    optional("key", key.as_deref(), sink);
    member("kind", kind.as_str(), sink);
    sink.put(",");
    member("manifestHash", manifest_hash, sink);
    sink.put(",");
    optional("path", path.as_deref(), sink);
    member("sessionId", session_id.as_str(), sink);
    sink.put(",");
    optional("toolName", tool_name.as_deref(), sink);
    member("turnId", turn_id.as_str(), sink);
    sink.put("}");
}

/// `"name":"value"`; the name needs no escapes.
fn member(name: &str, value: &str, sink: &mut impl Sink) {
    sink.put("\"");
    sink.put(name);
    sink.put("\":");
    write_string(value, sink);
}

/// A member and the comma after it, or nothing. Never the last one of its object.
fn optional(name: &str, value: Option<&str>, sink: &mut impl Sink) {
    if let Some(value) = value {
        member(name, value, sink);
        sink.put(",");
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    CodeUnit,
    Collated,
}

struct Writer<'a, 's, S> {
    order: Order,
    sink: &'s mut S,
    /// The members of all objects that are being written, innermost last: one allocation for a whole document.
    members: Vec<(&'a str, &'a Json)>,
}

impl<'a, 's, S: Sink> Writer<'a, 's, S> {
    fn new(order: Order, sink: &'s mut S) -> Self {
        Self { order, sink, members: Vec::new() }
    }

    fn value(&mut self, value: &'a Json) {
        match value {
            Json::Null => self.sink.put("null"),
            Json::Bool(true) => self.sink.put("true"),
            Json::Bool(false) => self.sink.put("false"),
            Json::Number(number) => self.sink.put(ryu_js::Buffer::new().format_finite(double(number))),
            Json::String(text) => write_string(text, self.sink),
            Json::Array(items) => {
                self.sink.put("[");
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        self.sink.put(",");
                    }
                    self.value(item);
                }
                self.sink.put("]");
            }
            Json::Object(map) => self.object(map),
        }
    }

    fn object(&mut self, map: &'a JsonMap) {
        let start = self.members.len();
        self.members.extend(map.iter().map(|(key, value)| (key.as_str(), value)));
        sort(&mut self.members[start..], self.order);
        self.sink.put("{");
        for i in start..self.members.len() {
            let (key, value) = self.members[i];
            if i > start {
                self.sink.put(",");
            }
            write_string(key, self.sink);
            self.sink.put(":");
            self.value(value);
        }
        self.sink.put("}");
        self.members.truncate(start);
    }
}

fn sort(members: &mut [(&str, &Json)], order: Order) {
    // Digits before lowercase letters: there, and below U+E000, all orders agree with the order of bytes.
    let by_bytes = members.iter().all(|(key, _)| match order {
        Order::CodeUnit => key.bytes().all(|b| b < 0xEE),
        Order::Collated => key.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase()),
    });
    if by_bytes {
        members.sort_unstable_by(|a, b| a.0.cmp(b.0));
    } else if order == Order::CodeUnit {
        members.sort_by(|a, b| utf16_units(a.0).cmp(utf16_units(b.0)));
    } else {
        members.sort_by(|a, b| collate(a.0, b.0));
    }
}

/// Compares as JavaScript's `localeCompare` does: the root collation, tertiary strength.
fn collate(a: &str, b: &str) -> Ordering {
    static COLLATOR: OnceLock<CollatorBorrowed<'static>> = OnceLock::new();
    let collator = COLLATOR.get_or_init(|| {
        // The root collation's data is compiled into the crate, so it is always found.
        Collator::try_new(Default::default(), CollatorOptions::default()).expect("the root collation")
    });
    if a.contains(MARK) || b.contains(MARK) {
        let units = |text| utf16_units(text).collect::<Vec<_>>();
        return collator.compare_utf16(&units(a), &units(b));
    }
    collator.compare(a, b)
}

/// A number as JavaScript has it: always a double.
fn double(number: &serde_json::Number) -> f64 {
    // Without arbitrary precision every number has a double.
    number.as_f64().unwrap_or(0.0)
}

/// The escape of a control character, a quote or a backslash.
fn write_escape(byte: u8, sink: &mut impl Sink) {
    let short = match byte {
        b'"' => "\\\"",
        b'\\' => "\\\\",
        0x08 => "\\b",
        b'\t' => "\\t",
        b'\n' => "\\n",
        0x0C => "\\f",
        b'\r' => "\\r",
        _ => {
            let hex =
                [b"0123456789abcdef"[usize::from(byte >> 4)], b"0123456789abcdef"[usize::from(byte & 15)]];
            sink.put("\\u00");
            sink.put(std::str::from_utf8(&hex).unwrap_or_default());
            return;
        }
    };
    sink.put(short);
}

/// Writes what the mark at the start of `text` stands for and says how many bytes that was.
fn write_kept(text: &str, sink: &mut impl Sink) -> usize {
    match kept_at(text) {
        Kept::Mark => {
            sink.put(&text[..MARK.len_utf8()]);
            KEPT_LEN
        }
        Kept::Stray => {
            sink.put(&text[..MARK.len_utf8()]);
            MARK.len_utf8()
        }
        Kept::Unit(high) => {
            // Two halves that we put side by side are one character by now.
            let next = &text[KEPT_LEN..];
            if let (true, Kept::Unit(low)) = (next.starts_with(MARK), kept_at(next))
                && let Some(Ok(whole)) = char::decode_utf16([high, low]).next()
            {
                sink.put(whole.encode_utf8(&mut [0; 4]));
                return 2 * KEPT_LEN;
            }
            sink.put("\\u");
            sink.put(&text[MARK.len_utf8()..KEPT_LEN]);
            KEPT_LEN
        }
    }
}

#[cfg(test)]
mod tests;
