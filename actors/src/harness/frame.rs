//! Frames of the Harness API: one JSON text each, closed shapes (spec: harness-api, section 5).

use serde::Serialize;
use serde_json::json;

use crate::model::json::{Json, JsonMap, encode, parse};
use crate::ports::engine::{ApiCode, ApiError};

/// Largest number a peer written in JavaScript counts exactly.
const MOST_SAFE: u64 = (1 << 53) - 1;

/// A frame that was read.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// A request.
    Request {
        /// The requester's number for it.
        id: u64,
        /// Which method.
        method: String,
        /// Its params; null when absent.
        params: Json,
    },
    /// An answer.
    Response {
        /// The request's number.
        id: u64,
        /// What it came to.
        result: Result<Json, ApiError>,
    },
    /// A message without an answer.
    Message {
        /// Its name.
        name: String,
        /// Its params; null when absent.
        params: Json,
    },
    /// The requester gave up.
    Abort {
        /// The request's number.
        id: u64,
    },
    /// Accepted and ignored.
    Ping,
}

/// A frame that is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadFrame {
    /// Not JSON text: the connection closes with 1007.
    NotJson,
    /// It looks like a request with this number: it is answered `invalid`.
    Request {
        /// The number.
        id: u64,
        /// What is wrong.
        message: String,
    },
    /// Anything else: the connection closes.
    Other {
        /// What is wrong.
        message: String,
    },
}

/// The codes that an answer may carry.
fn code_of(name: &str) -> Option<ApiCode> {
    [
        ApiCode::RunNotHeld,
        ApiCode::TurnCancelled,
        ApiCode::OwnershipLost,
        ApiCode::EffectDrift,
        ApiCode::Invalid,
        ApiCode::Unavailable,
        ApiCode::Internal,
    ]
    .into_iter()
    .find(|code| code.as_str() == name)
}

fn id_of(map: &JsonMap) -> Option<u64> {
    let id = map.get("id")?;
    // A JavaScript peer may write a whole number as 1.0.
    let id = id.as_u64().or_else(|| {
        let float = id.as_f64()?;
        (float.fract() == 0.0 && float >= 1.0 && float <= MOST_SAFE as f64).then_some(float as u64)
    })?;
    (1..=MOST_SAFE).contains(&id).then_some(id)
}

fn text_of(map: &JsonMap, key: &str) -> Option<String> {
    map.get(key).and_then(Json::as_str).filter(|t| !t.is_empty()).map(str::to_owned)
}

fn only(map: &JsonMap, allowed: &[&str]) -> bool {
    map.keys().all(|key| allowed.contains(&key.as_str()))
}

impl Frame {
    /// Reads one frame.
    ///
    /// # Errors
    /// [`BadFrame`], which says how to treat it.
    pub fn read(text: &[u8]) -> Result<Self, BadFrame> {
        let Ok(value) = parse(text) else { return Err(BadFrame::NotJson) };
        let Json::Object(mut map) = value else {
            return Err(BadFrame::Other { message: "a frame is an object".into() });
        };
        let kind = text_of(&map, "t").unwrap_or_default();
        let id = id_of(&map);
        let read = match kind.as_str() {
            "req" if only(&map, &["t", "id", "m", "p"]) => id.zip(text_of(&map, "m")).map(|(id, method)| {
                let params = map.get_mut("p").map(Json::take).unwrap_or_default();
                Self::Request { id, method, params }
            }),
            "res" => Self::read_response(&mut map, id),
            "msg" if only(&map, &["t", "m", "p"]) => text_of(&map, "m").map(|name| {
                let params = map.get_mut("p").map(Json::take).unwrap_or_default();
                Self::Message { name, params }
            }),
            "abort" if only(&map, &["t", "id"]) => id.map(|id| Self::Abort { id }),
            "ping" if only(&map, &["t"]) => Some(Self::Ping),
            _ => None,
        };
        read.ok_or_else(|| match (kind.as_str(), id) {
            ("req", Some(id)) => BadFrame::Request { id, message: "malformed request frame".into() },
            _ => BadFrame::Other { message: format!("malformed frame of type {kind:?}") },
        })
    }

    fn read_response(map: &mut JsonMap, id: Option<u64>) -> Option<Self> {
        let id = id?;
        match map.get("ok") {
            Some(Json::Bool(true)) if only(map, &["t", "id", "ok", "r"]) => {
                let result = map.get_mut("r").map(Json::take).unwrap_or_default();
                Some(Self::Response { id, result: Ok(result) })
            }
            Some(Json::Bool(false)) if only(map, &["t", "id", "ok", "e"]) => {
                let error = map.get("e")?.as_object().filter(|e| only(e, &["code", "message"]))?;
                let code = code_of(error.get("code")?.as_str()?)?;
                let message = error.get("message")?.as_str()?;
                Some(Self::Response { id, result: Err(ApiError::new(code, message)) })
            }
            _ => None,
        }
    }

    /// A request as text.
    #[must_use]
    pub fn request<P: Serialize>(id: u64, method: &str, params: &P) -> String {
        format!(r#"{{"t":"req","id":{id},"m":{},"p":{}}}"#, encode(method), encode(params))
    }

    /// A success as text.
    #[must_use]
    pub fn success<R: Serialize>(id: u64, result: &R) -> String {
        format!(r#"{{"t":"res","id":{id},"ok":true,"r":{}}}"#, encode(result))
    }

    /// A failure as text.
    #[must_use]
    pub fn failure(id: u64, error: &ApiError) -> String {
        encode(&json!({ "t": "res", "id": id, "ok": false,
            "e": { "code": error.code.as_str(), "message": error.message } }))
    }

    /// A message as text.
    #[must_use]
    pub fn message<P: Serialize>(name: &str, params: &P) -> String {
        format!(r#"{{"t":"msg","m":{},"p":{}}}"#, encode(name), encode(params))
    }

    /// An abort as text.
    #[must_use]
    pub fn abort(id: u64) -> String {
        format!(r#"{{"t":"abort","id":{id}}}"#)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Frame, BadFrame> {
        Frame::read(text.as_bytes())
    }

    #[test]
    fn frames_read_as_they_are_written() {
        let request = Frame::request(7, "lease", &json!({}));
        assert_eq!(request, r#"{"t":"req","id":7,"m":"lease","p":{}}"#);
        assert_eq!(read(&request), Ok(Frame::Request { id: 7, method: "lease".into(), params: json!({}) }));
        let success = Frame::success(2, &json!({ "a": [1] }));
        assert_eq!(read(&success), Ok(Frame::Response { id: 2, result: Ok(json!({ "a": [1] })) }));
        let error = ApiError::new(ApiCode::RunNotHeld, "no");
        assert_eq!(read(&Frame::failure(3, &error)), Ok(Frame::Response { id: 3, result: Err(error) }));
        let message = Frame::message("cancel", &json!({ "runId": "r" }));
        assert_eq!(
            read(&message),
            Ok(Frame::Message { name: "cancel".into(), params: json!({ "runId": "r" }) })
        );
        assert_eq!(read(&Frame::abort(9)), Ok(Frame::Abort { id: 9 }));
        assert_eq!(read(r#"{"t":"ping"}"#), Ok(Frame::Ping));
    }

    #[test]
    fn params_and_results_may_be_absent() {
        assert_eq!(
            read(r#"{"t":"req","id":1,"m":"x"}"#),
            Ok(Frame::Request { id: 1, method: "x".into(), params: Json::Null })
        );
        assert_eq!(
            read(r#"{"t":"res","id":1,"ok":true}"#),
            Ok(Frame::Response { id: 1, result: Ok(Json::Null) })
        );
    }

    #[test]
    fn text_that_is_not_json_closes_with_1007() {
        assert_eq!(read("{"), Err(BadFrame::NotJson));
        assert_eq!(Frame::read(b"\xff"), Err(BadFrame::NotJson));
    }

    #[test]
    fn a_malformed_request_with_a_number_is_answered_and_everything_else_closes() {
        for text in [
            r#"{"t":"req","id":4}"#,
            r#"{"t":"req","id":4,"m":""}"#,
            r#"{"t":"req","id":4,"m":"x","extra":1}"#,
            r#"{"t":"req","id":4,"m":1}"#,
        ] {
            assert!(matches!(read(text), Err(BadFrame::Request { id: 4, .. })), "{text}");
        }
        for text in [
            "1",
            "[]",
            "null",
            "{}",
            r#"{"t":"req","id":0,"m":"x"}"#,
            r#"{"t":"req","id":-1,"m":"x"}"#,
            r#"{"t":"req","id":1.5,"m":"x"}"#,
            r#"{"t":"req","id":"1","m":"x"}"#,
            r#"{"t":"req","m":"x"}"#,
            r#"{"t":"req","id":9007199254740992,"m":"x"}"#,
            r#"{"t":"abort"}"#,
            r#"{"t":"abort","id":1,"x":1}"#,
            r#"{"t":"ping","x":1}"#,
            r#"{"t":"res","id":1}"#,
            r#"{"t":"res","id":1,"ok":true,"e":1}"#,
            r#"{"t":"res","id":1,"ok":false,"e":{"code":"odd","message":"m"}}"#,
            r#"{"t":"res","id":1,"ok":false,"e":{"code":"invalid"}}"#,
            r#"{"t":"msg","m":""}"#,
            r#"{"t":"other"}"#,
        ] {
            assert!(matches!(read(text), Err(BadFrame::Other { .. })), "{text}");
        }
    }

    /// A value for a member: often the right one.
    fn member() -> impl Strategy<Value = Json> {
        prop_oneof![
            Just(json!("req")),
            Just(json!("res")),
            Just(json!("msg")),
            Just(json!("abort")),
            Just(json!("ping")),
            Just(json!(1)),
            Just(json!(7.0)),
            Just(json!(1.5)),
            Just(json!(0)),
            Just(json!(-3)),
            Just(json!(MOST_SAFE)),
            Just(json!(MOST_SAFE + 1)),
            Just(json!(1e300)),
            Just(json!(true)),
            Just(json!(false)),
            Just(json!(null)),
            Just(json!("")),
            Just(json!("lease")),
            Just(json!({})),
            Just(json!([])),
            Just(json!({"code": "invalid", "message": ""})),
            Just(json!({"code": "invalid"})),
            Just(json!({"code": "odd", "message": "m"})),
            Just(json!({"code": "internal", "message": "m", "x": 1})),
            ".{0,6}".prop_map(|text| json!(text)),
        ]
    }

    /// An object of members that frames have, and now and then of others.
    fn object() -> impl Strategy<Value = Json> {
        let kind = prop_oneof![
            4 => prop::sample::select(vec!["req", "res", "msg", "abort", "ping"]).prop_map(|t| Some(json!(t))),
            1 => prop::option::of(member()),
        ];
        let id =
            prop_oneof![2 => (1..50_u64).prop_map(|id| Some(json!(id))), 1 => prop::option::of(member())];
        let name =
            prop_oneof![2 => Just(Some(json!("lease"))), 2 => Just(None), 1 => prop::option::of(member())];
        let ok = prop_oneof![1 => any::<bool>().prop_map(|ok| Some(json!(ok))), 2 => Just(None), 1 => prop::option::of(member())];
        let rare = || prop_oneof![2 => Just(None), 1 => prop::option::of(member())];
        let odd = prop_oneof![9 => Just(None), 1 => member().prop_map(Some)];
        (kind, id, name, ok, rare(), rare(), rare(), odd).prop_map(|(t, id, m, ok, p, r, e, x)| {
            let members =
                [("t", t), ("id", id), ("m", m), ("ok", ok), ("p", p), ("r", r), ("e", e), ("x", x)];
            members.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
        })
    }

    /// What section 5 says of an object, written down once more: kind, members it must have, members it may have.
    fn judge(frame: &Json) -> &'static str {
        let has = |key: &str| frame.get(key).is_some();
        let id = frame["id"]
            .as_f64()
            .is_some_and(|id| id >= 1.0 && id.fract() == 0.0 && id <= 9_007_199_254_740_991.0);
        let name = frame["m"].as_str().is_some_and(|name| !name.is_empty());
        let none = |keys: &[&str]| !keys.iter().any(|key| has(key));
        let error = frame["e"].as_object().is_some_and(|e| {
            let known = e.get("code").and_then(Json::as_str).and_then(code_of).is_some();
            known && e.get("message").is_some_and(Json::is_string) && e.len() == 2
        });
        let good = match frame["t"].as_str() {
            Some("req") => id && name && none(&["ok", "r", "e", "x"]),
            Some("msg") => name && none(&["id", "ok", "r", "e", "x"]),
            Some("abort") => id && none(&["m", "ok", "p", "r", "e", "x"]),
            Some("ping") => none(&["id", "m", "ok", "p", "r", "e", "x"]),
            Some("res") if frame["ok"] == true => id && none(&["m", "p", "e", "x"]),
            Some("res") if frame["ok"] == false => id && error && none(&["m", "p", "r", "x"]),
            _ => false,
        };
        match (good, frame["t"] == "req" && id) {
            (true, _) => "good",
            (false, true) => "answered",
            (false, false) => "closes",
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 100_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn each_of_100_000_generated_frames_is_judged_as_the_section_says(frame in object()) {
            let text = encode(&frame);
            let judged = match Frame::read(text.as_bytes()) {
                Ok(read) => {
                    let again = match &read {
                        Frame::Request { id, method, params } => Frame::request(*id, method, params),
                        Frame::Response { id, result: Ok(result) } => Frame::success(*id, result),
                        Frame::Response { id, result: Err(error) } => Frame::failure(*id, error),
                        Frame::Message { name, params } => Frame::message(name, params),
                        Frame::Abort { id } => Frame::abort(*id),
                        Frame::Ping => r#"{"t":"ping"}"#.to_owned(),
                    };
                    prop_assert_eq!(Frame::read(again.as_bytes()), Ok(read), "it reads as it is written");
                    "good"
                }
                Err(BadFrame::Request { id, .. }) => {
                    prop_assert_eq!(frame["id"].as_f64(), Some(id as f64));
                    "answered"
                }
                Err(BadFrame::Other { .. }) => "closes",
                Err(BadFrame::NotJson) => "no JSON",
            };
            prop_assert_eq!(judged, judge(&frame), "{}", text);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Frame::read(&bytes);
        }

        #[test]
        fn any_text_survives_in_a_request(method in ".{1,20}", text in ".*") {
            let written = Frame::request(1, &method, &json!({ "v": text }));
            prop_assert_eq!(read(&written), Ok(Frame::Request { id: 1, method, params: json!({ "v": text }) }));
        }
    }
}
