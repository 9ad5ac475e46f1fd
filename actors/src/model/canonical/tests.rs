//! The published hash vectors, both key orders, and properties of canonical text.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::model::effect::{AgentRef, EffectHook};
use crate::model::json::parse;

const T: &str = "6f1d0c1e-5b7a-4a53-9f0e-2f4f7f6a9b10";

fn read(text: &str) -> Json {
    parse(text.as_bytes()).expect(text)
}

fn effect(value: Json) -> EffectIntent {
    serde_json::from_value(value).expect("an effect")
}

/// The effect of a vector, with `T` expanded.
fn vector(text: &str) -> EffectIntent {
    effect(read(&text.replace("\"T", &format!("\"{T}"))))
}

#[test]
fn the_model_vector_hashes_with_its_prompt() {
    let mut model = vector(
        r#"{"agentId":"billing-bot","context":{"invocationId":"inv-1"},"effectId":"T:0:model:inv-1","input":{"prompt":[{"content":"Refund INV-7","role":"user"}]},"kind":"model","manifestHash":"mh-1","sessionId":"s-42","turnId":"T"}"#,
    );
    let hash = "f7a0d7d523e3f1247519f88a4037a83868bdbba7aca08f9794b4a3df30a5b370";
    assert_eq!(request_hash(&model), hash);

    model.input = None;
    let pieces = request_hash_with_input(&model, |hasher| {
        hasher.put(r#"{"prompt":["#);
        hasher.value(&json!({"role": "user", "content": "Refund INV-7"}));
        hasher.put("]}");
    });
    assert_eq!(pieces, hash, "a prompt put in pieces is the same prompt");
    assert_ne!(request_hash(&model), hash, "without its prompt it is another request");
}

#[test]
fn the_tool_vector_of_the_worked_example() {
    let tool = vector(
        r#"{"effectId":"T:0:tool:inv-2","sessionId":"s-42","turnId":"T","agentId":"billing-bot","manifestHash":"mh-1","kind":"tool",
            "capabilityId":"billing","toolName":"refund","input":{"invoice":"INV-7","cents":1250},
            "context":{"executionId":"s-42","turnId":"turn-1","stepId":"step-1","callId":"call-1","invocationId":"inv-2","idempotencyKey":"idem-1","state":{}}}"#,
    );
    assert_eq!(request_hash(&tool), "deafcf5ca3bd80df3eb052778d9e6ae83cfb86e145f567133d57c59f108b2c75");
}

#[test]
fn the_delegation_vector_leaves_its_context_out() {
    let delegation = vector(
        r#"{"agent":{"delegationId":"del-1","id":"helper","path":"billing-bot/helper"},"agentId":"billing-bot","effectId":"T:0:delegation:del-1:started","input":{"task":"x"},"kind":"delegation","manifestHash":"mh-1","sessionId":"s-42","turnId":"T","context":{"callId":"call-9"}}"#,
    );
    assert_eq!(request_hash(&delegation), "46eb2d26a42b3fce84c2d4d77554cf293cc6d4c518a175b1b2a57d5559e35b93");
}

#[test]
fn the_vector_of_odd_scalars_and_keys() {
    let text = format!(
        "{{\"agentId\":\"billing-bot\",\"capabilityId\":\"c\",\"context\":{{}},\"effectId\":\"e\",\"input\":{{\"Z\":1e+21,\"a\":0,\"n\":0.1,\"s\":\"\u{2028}\\\"\\n\\u0007\",\"\u{E9}\":1,\"\u{1F600}\":null,\"\u{FFFF}\":[true,{{}}]}},\"kind\":\"tool\",\"manifestHash\":\"mh-1\",\"sessionId\":\"s-42\",\"toolName\":\"t\",\"turnId\":\"{T}\"}}"
    );
    let hash = "5af77af0e193965dfe62b61e924282cb6351d81b2b0fdb58734a74d4e27c4b06";
    assert_eq!(sha256_hex(text.as_bytes()), hash);
    let source = vector(
        r#"{"turnId":"T","toolName":"t","sessionId":"s-42","manifestHash":"mh-1","kind":"tool","effectId":"e","context":{},"capabilityId":"c","agentId":"billing-bot",
            "input":{"\uffff":[true,{}],"\ud83d\ude00":null,"\u00e9":1.0,"s":"\u2028\"\n\u0007","n":0.1,"a":-0,"Z":1e21}}"#,
    );
    assert_eq!(canonical(&serde_json::to_value(&source).expect("json")), text);
    assert_eq!(request_hash(&source), hash);
}

#[test]
fn a_request_is_hashed_as_its_generic_canonical_form() {
    let full = EffectIntent {
        effect_id: "e\u{10FFFE}d800".into(),
        session_id: "s\"1".into(),
        turn_id: T.into(),
        agent_id: "a".into(),
        manifest_hash: "mh".into(),
        kind: EffectKind::Hook,
        agent: Some(AgentRef { id: "i".into(), path: "a/i".into(), delegation_id: Some("d".into()) }),
        capability_id: Some("c".into()),
        tool_name: Some("t".into()),
        hook: Some(EffectHook {
            at: "before".into(),
            scope: "turn".into(),
            capability_ids: vec!["x".into(), "y".into()],
        }),
        path: Some("p".into()),
        key: Some("k".into()),
        iterations: Some("-".into()),
        input: Some(Arc::new(json!({"b": [1], "a": null}))),
        context: read(r#"{"z":1,"a":{"c":1,"b":2}}"#).as_object().expect("a map").clone(),
    };
    let bare = EffectIntent {
        agent: full.agent.clone().map(|agent| AgentRef { delegation_id: None, ..agent }),
        capability_id: None,
        tool_name: None,
        hook: None,
        path: None,
        key: None,
        iterations: None,
        input: None,
        ..full.clone()
    };
    for effect in [full, bare] {
        assert_eq!(request_hash(&effect), canonical_sha256(&serde_json::to_value(&effect).expect("json")));
    }
}

#[test]
fn a_null_input_is_an_input_and_an_absent_one_is_none() {
    let null = vector(
        r#"{"agentId":"a","context":{},"effectId":"e","input":null,"kind":"fn","manifestHash":"m","sessionId":"s","turnId":"T"}"#,
    );
    assert_eq!(null.input.as_deref(), Some(&Json::Null));
    assert_ne!(request_hash(&null), request_hash(&EffectIntent { input: None, ..null.clone() }));
}

#[test]
fn scalars_print_as_ecmascript_prints_them() {
    for (json, text) in [
        ("1.0", "1"),
        ("-0", "0"),
        ("-0.0", "0"),
        ("1e21", "1e+21"),
        ("1e20", "100000000000000000000"),
        ("123456789012345680000", "123456789012345680000"),
        ("9007199254740993", "9007199254740992"),
        ("18446744073709551615", "18446744073709552000"),
        ("-9223372036854775808", "-9223372036854776000"),
        ("0.1", "0.1"),
        ("0.30000000000000004", "0.30000000000000004"),
        ("1e-7", "1e-7"),
        ("0.000001", "0.000001"),
        ("5e-324", "5e-324"),
        ("1.7976931348623157e308", "1.7976931348623157e+308"),
        ("[ true , false , null ]", "[true,false,null]"),
        (
            r#""\/\u002f\u007f\u0000\u001f\u0008\u0009\u000a\u000c\u000d""#,
            "\"//\u{7f}\\u0000\\u001f\\b\\t\\n\\f\\r\"",
        ),
        (r#""\u2028\u2029\ufeff""#, "\"\u{2028}\u{2029}\u{feff}\""),
        (r#""\uD800x\uDC00""#, r#""\ud800x\udc00""#),
        (r#""\ud83d\ude00""#, "\"\u{1F600}\""),
        ("\"\u{10FFFE}d800\"", "\"\u{10FFFE}d800\""),
        ("\"\u{10FFFF}\"", "\"\u{10FFFF}\""),
    ] {
        assert_eq!(canonical(&read(json)), text, "{json}");
        assert_eq!(canonical_collated(&read(json)), text, "{json}");
    }
}

#[test]
fn halves_of_a_pair_joined_here_are_the_character() {
    let high = read(r#""\ud83d""#);
    let low = read(r#""\ude00""#);
    let joined = format!("{}{}", high.as_str().expect("text"), low.as_str().expect("text"));
    assert_eq!(canonical(&Json::String(joined)), "\"\u{1F600}\"");
}

#[test]
fn keys_sort_by_utf16_code_unit() {
    let value = read(r#"{"\uffff":1,"\ue000":2,"\ud83d\ude00":3,"\ud800":4,"é":5,"z":6,"Z":7,"":8,"zz":9}"#);
    assert_eq!(
        canonical(&value),
        "{\"\":8,\"Z\":7,\"z\":6,\"zz\":9,\"é\":5,\"\\ud800\":4,\"\u{1F600}\":3,\"\u{E000}\":2,\"\u{FFFF}\":1}"
    );
}

/// The order that engine 1.6 gives, primary weights first, and lower case before upper.
const ASCII: &str =
    " _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$0123456789aAbBcCdDeEfFgGhHiIjJkKlLmMnNoOpPqQrRsStTuUvVwWxXyYzZ";

#[test]
fn ascii_keys_collate_in_the_order_of_the_spec() {
    assert_eq!(ASCII.len(), 95, "every visible ASCII character and the space");
    let keys: Vec<String> = ASCII.chars().map(String::from).collect();
    for pair in keys.windows(2) {
        assert_eq!(collate(&pair[0], &pair[1]), Ordering::Less, "{pair:?}");
    }
    let reversed: JsonMap = keys.iter().rev().map(|key| (key.clone(), Json::Null)).collect();
    let expected: Vec<String> = keys.iter().map(|key| format!("{}:null", canonical(&json!(key)))).collect();
    assert_eq!(canonical_collated(&Json::Object(reversed)), format!("{{{}}}", expected.join(",")));
}

#[test]
fn case_only_breaks_ties() {
    for sorted in [
        &["fooa", "fooB"][..],
        &["order_id", "ordered", "orderId"],
        &["a", "A", "aa", "aA", "Aa", "AA", "ab"],
        &["item", "items", "itemS2"],
        &["e", "é", "f", "z", "ω"],
        &["x-y", "x.y", "x1", "xy"],
    ] {
        for pair in sorted.windows(2) {
            assert_eq!(collate(pair[0], pair[1]), Ordering::Less, "{pair:?}");
        }
    }
}

#[test]
fn keys_that_collate_equal_keep_the_order_of_the_document() {
    assert_eq!(canonical_collated(&read(r#"{"e\u0301":1,"\u00e9":2}"#)), "{\"e\u{301}\":1,\"\u{e9}\":2}");
    assert_eq!(canonical_collated(&read(r#"{"\u00e9":2,"e\u0301":1}"#)), "{\"\u{e9}\":2,\"e\u{301}\":1}");
}

#[test]
fn the_manifest_vector() {
    let text = r#"{"capabilities":[{"id":"agent","tools":[{"inputSchema":{"$schema":"x","properties":{"_x":{},"order_id":{},"ordered":{},"orderId":{"minimum":0,"minLength":1}},"type":"object"},"name":"t"}],"type":"agent"}],"id":"vec","manifestSchemaVersion":4}"#;
    let manifest = read(text);
    assert_eq!(canonical_collated(&manifest), text);
    assert_eq!(manifest_hash(&manifest), "f7fe41feb99d0909e332610f14f073181f9d7203929083d4a7df151238bb00d2");
    assert!(canonical_sha256(&manifest).starts_with("20c28dfd"), "by code units it is another hash");
}

fn keys() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z0-9]{0,3}", "[ -~]{0,4}", "\\PC{0,3}", "[\u{1f600}\u{e000}\u{ffff}éa]{0,3}"]
}

fn values() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        any::<u64>().prop_map(Json::from),
        any::<f64>().prop_map(Json::from),
        any::<String>().prop_map(Json::from),
        keys().prop_map(Json::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Json::from),
            prop::collection::vec((keys(), inner), 0..6)
                .prop_map(|members| Json::Object(members.into_iter().collect())),
        ]
    })
}

fn reversed(value: &Json) -> Json {
    match value {
        Json::Array(items) => items.iter().map(reversed).collect(),
        Json::Object(map) => {
            Json::Object(map.iter().rev().map(|(key, value)| (key.clone(), reversed(value))).collect())
        }
        scalar => scalar.clone(),
    }
}

proptest! {
    #[test]
    fn canonical_text_parses_back_to_an_equal_value(value in values()) {
        for text in [canonical(&value), canonical_collated(&value)] {
            let again = read(&text);
            prop_assert!(canonical_eq(&again, &value), "{text}");
        }
        prop_assert_eq!(canonical(&read(&canonical(&value))), canonical(&value));
    }

    #[test]
    fn the_order_of_members_does_not_matter(value in values()) {
        prop_assert_eq!(canonical(&reversed(&value)), canonical(&value));
        prop_assert!(canonical_eq(&reversed(&value), &value));
    }

    #[test]
    fn equality_is_equality_of_canonical_texts(a in values(), b in values()) {
        prop_assert_eq!(canonical_eq(&a, &b), canonical(&a) == canonical(&b));
    }

    #[test]
    fn hashing_in_pieces_is_hashing_the_text(value in values()) {
        prop_assert_eq!(canonical_sha256(&value), sha256_hex(canonical(&value).as_bytes()));
        prop_assert_eq!(manifest_hash(&value), sha256_hex(canonical_collated(&value).as_bytes()));
    }

    #[test]
    fn lower_case_words_collate_as_bytes(a in "[a-z0-9]{0,6}", b in "[a-z0-9]{0,6}") {
        prop_assert_eq!(collate(&a, &b), a.cmp(&b));
    }
}
