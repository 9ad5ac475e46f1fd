//! The way of a delivery, from the tree through the real transport to a socket.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use nylorun_actors::model::json::parse;
use nylorun_actors::rules::endpoints::Registration;
use serde_json::json;

use super::support::Api;

#[actix_web::test]
async fn a_ping_goes_signed_from_the_tree_to_the_endpoint_and_its_answer_comes_back() {
    let api = Api::start(vec![]).await;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/act", listener.local_addr().unwrap());
    let endpoint = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let (mut seen, mut piece) = (Vec::new(), [0; 4096]);
        while !seen.ends_with(b"}") {
            let n = socket.read(&mut piece).unwrap();
            assert!(n > 0, "the whole request comes");
            seen.extend_from_slice(&piece[..n]);
        }
        let body = r#"{"agentId":"a","implementationVersion":"7"}"#;
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        socket.write_all(format!("{head}{body}").as_bytes()).unwrap();
        String::from_utf8(seen).unwrap()
    });
    let tenant = api.state.slot().open_tenant().unwrap().tenant.clone();
    let registration = Registration {
        agent_id: "a".into(),
        url,
        implementation_version: "7".into(),
        manifest_hash: None,
        timeout_ms: 5000,
        max_concurrent: 1,
    };
    tenant.register_endpoints(vec![registration]).await.unwrap();
    let Ok(answer) = tenant.ping_endpoint(&"a".into()).await else { panic!("an answer") };
    assert_eq!(answer, json!({"agentId": "a", "implementationVersion": "7"}));
    let seen = endpoint.join().unwrap();
    let (head, body) = seen.split_once("\r\n\r\n").unwrap();
    assert_eq!(parse(body.as_bytes()).unwrap()["type"], "ping");
    let token = head.lines().find_map(|line| line.strip_prefix("nylorun-signature: ")).unwrap();
    // Signed by a key of the published set, and no bearer: a ping acts for no Action.
    let set = api.request("GET", "/v1/access/jwks").send().await.json();
    let header = token.split('.').next().unwrap();
    let header = base64::Engine::decode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, header).unwrap();
    let kid = parse(&header).unwrap()["kid"].clone();
    assert!(set["keys"].as_array().unwrap().iter().any(|key| key["kid"] == kid));
    assert_eq!(api.request("GET", "/v1/me").bearer(token).send().await.status, 404);
}
