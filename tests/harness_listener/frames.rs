//! What is a frame and what is none, at the WebSocket's level and at the API's (spec: harness-api, sections 4 and 5).

use nylorun_actors::limits::HARNESS_FRAME_BYTES;
use serde_json::json;

use super::peer::{Got, PATIENCE, Peer, frame};
use super::world::World;

#[actix_web::test]
async fn a_message_may_come_in_parts_with_pings_between_them() {
    let world = World::start().await;
    let mut peer = Peer::connect(world.address).await;
    let hello = br#"{"t":"req","id":1,"m":"hello","p":{"api":1,"name":"h","version":"1","capabilities":{}}}"#;
    let parts = [
        frame(0x01, &hello[..10]),
        frame(0x89, b"are you there"),
        frame(0x00, b""),
        frame(0x00, &hello[10..40]),
        frame(0x80, &hello[40..]),
    ]
    .concat();
    for byte in parts.chunks(3) {
        peer.bytes(byte).await;
    }
    assert_eq!(peer.receive().await, Got::Pong(b"are you there".to_vec()));
    assert!(peer.next_text().await.starts_with(r#"{"t":"res","id":1,"ok":true,"#));
}

#[actix_web::test]
async fn what_is_no_json_text_closes_with_1007_and_what_is_no_frame_with_1002() {
    let world = World::start().await;
    let not_text = (1007, "Harness API frames are JSON text");
    let cases: Vec<(&str, Vec<u8>, u16, &str)> = vec![
        ("binary", frame(0x82, b"{\"t\":\"ping\"}"), not_text.0, not_text.1),
        ("invalid UTF-8", frame(0x81, b"{\"t\":\"ping\xff\"}"), not_text.0, not_text.1),
        ("no JSON", frame(0x81, b"hello"), not_text.0, not_text.1),
        ("nothing", frame(0x81, b""), not_text.0, not_text.1),
        ("two values", frame(0x81, b"{} {}"), not_text.0, not_text.1),
        ("no mask", vec![0x81, 2, b'{', b'}'], 1002, ""),
        ("reserved bit", frame(0xC1, b"{}"), 1002, ""),
        ("unknown kind", frame(0x83, b"{}"), 1002, ""),
        ("continues nothing", frame(0x80, b"{}"), 1002, ""),
    ];
    for (what, bytes, code, reason) in cases {
        let mut peer = Peer::ready(world.address).await;
        peer.push(&bytes).await;
        let (got, said) = peer.end().await.unwrap_or_else(|| panic!("{what}: no close"));
        assert_eq!(got, code, "{what}: {said}");
        assert!(said.starts_with(reason), "{what}: {said}");
    }
    world.until_connected(0).await;
}

#[actix_web::test]
async fn a_malformed_frame_is_answered_when_it_has_a_number_and_else_ends_the_connection() {
    let world = World::start().await;
    let mut peer = Peer::ready(world.address).await;
    for (id, text) in [
        (50, r#"{"t":"req","id":50}"#),
        (51, r#"{"t":"req","id":51,"m":""}"#),
        (52, r#"{"t":"req","id":52,"m":1}"#),
        (53, r#"{"t":"req","id":53,"m":"lease","p":{},"x":1}"#),
        (54, r#"{"t":"req","id":54,"m":"lease","p":{},"ok":true}"#),
        (55, r#"{"t":"req","id":55,"m":"nothing.known","p":{}}"#),
        (56, r#"{"t":"req","id":56,"m":"cancel","p":{}}"#),
        (57, r#"{"t":"req","id":57,"m":"workspace.report","p":{}}"#),
    ] {
        peer.text(text).await;
        assert_eq!(peer.answer(id).await, Err("invalid".to_owned()), "{text}");
    }
    // None of these is answered, and none does harm.
    for text in [
        r#"{"t":"ping"}"#,
        r#"{"t":"res","id":9,"ok":true,"r":{"x":1}}"#,
        r#"{"t":"res","id":9,"ok":false,"e":{"code":"internal","message":""}}"#,
        r#"{"t":"msg","m":"cancel","p":{"runId":"r"}}"#,
        r#"{"t":"msg","m":"unheard","p":7}"#,
        r#"{"t":"abort","id":77}"#,
    ] {
        peer.text(text).await;
    }
    assert_eq!(peer.call("lease", json!({"slots": 0})).await, Err("invalid".to_owned()), "it lives");
    for text in [
        "1",
        "null",
        "[]",
        "\"req\"",
        "{}",
        r#"{"t":1}"#,
        r#"{"t":"req"}"#,
        r#"{"t":"req","id":0,"m":"lease"}"#,
        r#"{"t":"req","id":1.5,"m":"lease"}"#,
        r#"{"t":"req","id":"7","m":"lease"}"#,
        r#"{"t":"req","id":9007199254740992,"m":"lease"}"#,
        r#"{"t":"req","id":-1,"m":"lease"}"#,
        r#"{"t":"res","id":1}"#,
        r#"{"t":"res","id":1,"ok":"yes"}"#,
        r#"{"t":"res","id":1,"ok":false,"e":{"code":"odd","message":""}}"#,
        r#"{"t":"msg"}"#,
        r#"{"t":"msg","m":"x","id":1}"#,
        r#"{"t":"abort"}"#,
        r#"{"t":"abort","id":1,"m":"x"}"#,
        r#"{"t":"ping","id":1}"#,
        r#"{"t":"pong"}"#,
    ] {
        let mut peer = Peer::connect(world.address).await;
        peer.text(text).await;
        let (_, reason) = peer.end().await.unwrap_or_else(|| panic!("{text}: no close"));
        assert!(reason.starts_with("invalid frame:") && reason.len() <= 120, "{text}: {reason}");
    }
}

#[actix_web::test]
async fn a_number_in_use_ends_the_connection_and_a_number_that_is_free_again_does_not() {
    let world = World::start().await;
    let mut peer = Peer::connect(world.address).await;
    peer.text(r#"{"t":"req","id":1,"m":"lease"}"#).await;
    peer.text(r#"{"t":"abort","id":1}"#).await;
    peer.text(r#"{"t":"req","id":1,"m":"nothing.known"}"#).await;
    assert_eq!(peer.answer(1).await, Err("invalid".to_owned()));
    peer.text(r#"{"t":"req","id":1,"m":"lease"}"#).await;
    peer.text(r#"{"t":"req","id":1,"m":"lease"}"#).await;
    let (_, reason) = peer.end().await.expect("a close");
    assert!(reason.starts_with("invalid frame:"), "{reason}");
}

#[actix_web::test]
async fn params_of_another_shape_are_invalid_whatever_the_method() {
    let world = World::start().await;
    let session = world.session("s-params").await;
    let mut peer = Peer::ready(world.address).await;
    let run = peer.lease().await;
    let of = |more: serde_json::Value| {
        let mut all = json!({"runId": run.id});
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    };
    let good = run.model("m");
    let with = |path: &str, value: serde_json::Value| {
        let mut intent = good.clone();
        *intent.pointer_mut(path).unwrap() = value;
        intent
    };
    let mut extra = good.clone();
    extra["effect"]["extra"] = json!(1);
    let hello = json!({"api": 1, "name": "h", "version": "1", "capabilities": {}});
    let hello_with = |key: &str, value: serde_json::Value| {
        let mut hello = hello.clone();
        hello[key] = value;
        hello
    };
    let claim = json!({"sessionId": run.session, "turnId": null, "type": "sandbox.state", "payload": {}});
    let claim_with = |key: &str, value: serde_json::Value| {
        let mut claim = of(claim.clone());
        claim[key] = value;
        claim
    };
    let cases = vec![
        ("hello", json!({})),
        ("hello", hello_with("api", json!("1"))),
        ("hello", hello_with("name", json!(null))),
        ("hello", hello_with("capabilities", json!({"other": 1}))),
        ("hello", hello_with("more", json!(1))),
        ("lease", json!({"slots": 0})),
        ("lease", json!({"slots": 1.5})),
        ("lease", json!({"more": 1})),
        ("lease", json!([])),
        ("lease.renew", json!({})),
        ("lease.renew", json!({"runId": 1})),
        ("lease.renew", of(json!({"more": 1}))),
        ("lease.release", of(json!({}))),
        ("lease.release", of(json!({"reason": "cancel"}))),
        ("lease.release", of(json!({"reason": "shutdown", "more": 1}))),
        ("effect.intent", json!({"runId": run.id})),
        ("effect.intent", with("/requestHash", json!("ab"))),
        ("effect.intent", with("/requestHash", json!("A".repeat(64)))),
        ("effect.intent", with("/effect/kind", json!("odd"))),
        ("effect.intent", with("/effect/effectId", json!(""))),
        ("effect.intent", with("/effect/effectId", json!("x".repeat(513)))),
        ("effect.intent", with("/effect/sessionId", json!("another"))),
        ("effect.intent", with("/effect/turnId", json!("another"))),
        ("effect.intent", with("/effect/context", json!(1))),
        ("effect.intent", extra),
        ("effect.outcome", of(json!({"value": 1}))),
        ("effect.outcome", of(json!({"effectId": "e", "value": 1, "error": "x"}))),
        ("effect.outcome", of(json!({"effectId": "e", "error": 1}))),
        ("effect.outcome", of(json!({"effectId": "e", "value": 1, "more": 1}))),
        ("transcript.read", json!({})),
        ("transcript.read", of(json!({"cursor": 1}))),
        ("event", of(json!({}))),
        ("event", claim_with("type", json!("turn.completed"))),
        ("event", claim_with("turnId", json!(1))),
        ("event", claim_with("record", json!({"key": "k"}))),
        ("session.mcp", of(json!({}))),
        ("session.mcp", of(json!({"diagnostics": {}}))),
        ("session.mcp", of(json!({"diagnostics": [], "snapshot": {"snapshotSchemaVersion": 2}}))),
        ("session.mcp", of(json!({"diagnostics": [], "snapshot": 1}))),
        ("turn.completed", json!({})),
        ("turn.completed", of(json!({"status": "odd"}))),
        (
            "turn.completed",
            of(json!({"status": "completed", "transcript": [{"keep": -1, "entries": [], "length": 0}]})),
        ),
        ("turn.completed", of(json!({"status": "completed", "more": 1}))),
        ("turn.failed", of(json!({"thrown": {"code": "x"}}))),
        ("checkpoint", of(json!({"effectIds": "x"}))),
    ];
    for (method, params) in cases {
        let id = peer.ask(method, params.clone()).await;
        assert_eq!(peer.answer(id).await, Err("invalid".to_owned()), "{method} {params}");
    }
    // Nothing of all that has touched the run.
    peer.call("turn.completed", run.completed(0, &[])).await.unwrap();
    world.until(&session, "completed").await;
}

#[actix_web::test]
async fn a_message_of_64_mib_is_read_and_one_byte_more_closes_with_1009_before_it_is_sent() {
    let world = World::start().await;
    let mut peer = Peer::ready(world.address).await;
    let ping = br#"{"t":"ping"}"#;
    let mut largest = vec![b' '; HARNESS_FRAME_BYTES];
    largest[..ping.len()].copy_from_slice(ping);
    peer.frame(0x81, &largest).await;
    assert_eq!(peer.call("lease", json!({"slots": 0})).await, Err("invalid".to_owned()), "it was read");

    // A head alone says enough; nothing of the payload follows.
    let head = |first: u8, size: usize| [&[first, 0xFF][..], &(size as u64).to_be_bytes(), &[0; 4]].concat();
    peer.bytes(&head(0x81, HARNESS_FRAME_BYTES + 1)).await;
    assert_eq!(peer.end().await.expect("a close").0, 1009);

    let mut peer = Peer::ready(world.address).await;
    peer.frame(0x01, &largest[..HARNESS_FRAME_BYTES / 2]).await;
    peer.bytes(&head(0x80, HARNESS_FRAME_BYTES / 2 + 1)).await;
    assert_eq!(peer.end().await.expect("a close").0, 1009, "the parts count together");
}

#[actix_web::test]
async fn a_peers_close_is_answered_with_its_code_and_the_socket_ends() {
    let world = World::start().await;
    for (payload, expected) in [
        (1000_u16.to_be_bytes().to_vec(), (1000, String::new())),
        ([&4001_u16.to_be_bytes()[..], b"done"].concat(), (4001, String::new())),
        (Vec::new(), (1005, String::new())),
    ] {
        let mut peer = Peer::ready(world.address).await;
        peer.frame(0x88, &payload).await;
        let began = tokio::time::Instant::now();
        assert_eq!(peer.end().await, Some(expected));
        assert!(began.elapsed() < PATIENCE);
    }
    world.until_connected(0).await;
}
