//! Writing events: payloads that always fit (DESIGN.md, section 9: no served event is over 1 MiB).

use crate::limits::EVENT_BYTES;
use crate::model::event::EventKind;
use crate::model::ids::{SessionId, TurnId};
use crate::model::json::{Json, JsonMap, JsonText, encode};
use crate::ports::store::{StoreResult, Tx};

/// Room for everything in an envelope but its payload. Ids are at most a few hundred bytes.
const ENVELOPE_ROOM: usize = 8 * 1024;

/// Member that marks a payload whose values were cut.
pub const CUT_MARK: &str = "nylorunCut";

/// The text of a payload, cut where it would not fit: long strings are shortened, and a value that has too many
/// parts for that becomes a note of its size. The whole value stays where it came from.
#[must_use]
pub fn payload_text(payload: &JsonMap) -> JsonText {
    let text = encode(payload);
    if text.len() <= EVENT_BYTES - ENVELOPE_ROOM {
        return JsonText::from_trusted(text);
    }
    let mut longest = 256 * 1024;
    while longest >= 64 {
        let mut cut = payload.clone();
        for value in cut.values_mut() {
            shorten(value, longest);
        }
        cut.insert(CUT_MARK.into(), serde_json::json!({ "bytes": text.len() }));
        let shorter = encode(&cut);
        if shorter.len() <= EVENT_BYTES - ENVELOPE_ROOM {
            return JsonText::from_trusted(shorter);
        }
        longest /= 4;
    }
    let mut noted = JsonMap::new();
    for (key, value) in payload {
        let size = encode(value).len();
        let kept = if size <= 4096 { value.clone() } else { Json::String(format!("… {size} bytes …")) };
        noted.insert(key.clone(), kept);
    }
    noted.insert(CUT_MARK.into(), serde_json::json!({ "bytes": text.len() }));
    JsonText::of(&noted)
}

fn shorten(value: &mut Json, longest: usize) {
    match value {
        Json::String(text) if text.len() > longest => {
            let mut end = longest;
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            let left = text.len() - end;
            text.truncate(end);
            text.push_str(&format!("… {left} bytes more"));
        }
        Json::Array(items) => items.iter_mut().for_each(|v| shorten(v, longest)),
        Json::Object(map) => map.values_mut().for_each(|v| shorten(v, longest)),
        _ => {}
    }
}

/// Appends an event whose payload is an object of ours.
///
/// # Errors
/// The store's.
pub fn write(
    tx: &mut dyn Tx,
    session: &SessionId,
    turn: Option<&TurnId>,
    kind: EventKind,
    payload: &JsonMap,
) -> StoreResult<i64> {
    tx.event(session, turn, kind, payload_text(payload).as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn map(value: Json) -> JsonMap {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn a_payload_that_fits_is_written_whole() {
        let payload = map(json!({"text": "x".repeat(1_000_000)}));
        assert_eq!(payload_text(&payload).as_str(), encode(&payload));
    }

    #[test]
    fn a_larger_value_is_cut_in_the_events_copy_and_marked() {
        let payload = map(json!({"content": "é".repeat(700_000), "small": 1}));
        let text = payload_text(&payload);
        assert!(text.as_str().len() < EVENT_BYTES);
        let cut: Json = text.decode().unwrap();
        assert_eq!(cut["small"], 1);
        assert!(cut[CUT_MARK]["bytes"].as_u64().unwrap() > 1_000_000);
        assert!(cut["content"].as_str().unwrap().ends_with("bytes more"));
    }

    #[test]
    fn a_value_of_too_many_parts_becomes_a_note_of_its_size() {
        let payload = map(json!({"data": vec![json!({"k": 1}); 300_000], "id": "x"}));
        let text = payload_text(&payload);
        assert!(text.as_str().len() < 1000);
        assert_eq!(text.decode::<Json>().unwrap()["id"], "x");
    }
}
