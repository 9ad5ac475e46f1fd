//! The socket against listeners that a test plays by hand.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_tungstenite::accept_async;

use super::*;

fn token() -> SecretString {
    SecretString::from("ab".repeat(32))
}

#[test]
fn pauses_double_with_jitter_and_stay_in_their_bounds() {
    assert_eq!(pause(0, 0.99).as_millis(), 500);
    assert_eq!(pause(1, 0.0).as_millis(), 500);
    assert_eq!(pause(1, 0.5).as_millis(), 750);
    assert_eq!(pause(3, 1.0).as_millis(), 4000);
    for n in [5, 31, 32, 1000, u32::MAX] {
        assert_eq!(pause(n, 1.0).as_millis(), 10_000);
        assert_eq!(pause(n, 0.0).as_millis(), 500);
    }
}

#[test]
fn a_reason_is_cut_between_characters() {
    assert_eq!(cut("short"), "short");
    let long = "é".repeat(100);
    assert_eq!(cut(&long).len(), 120);
    assert_eq!(cut(&format!("x{long}")).len(), 119);
}

/// Answers one upgrade with this status; gives back what was asked.
async fn refusing(status: &'static str) -> (String, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}/nylorun/harness/v1", listener.local_addr().unwrap());
    let task = tokio::spawn(async move {
        let (mut peer, _) = listener.accept().await.unwrap();
        let mut asked = vec![0; 4096];
        let read = peer.read(&mut asked).await.unwrap();
        let answer = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        peer.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8_lossy(&asked[..read]).to_ascii_lowercase()
    });
    (url, task)
}

#[tokio::test]
async fn the_upgrade_names_version_and_token_and_a_refusal_says_what_to_do() {
    for (status, code, word) in [
        ("401 Unauthorized", 401, "NYLORUN_HARNESS_TOKEN"),
        ("404 Not Found", 404, "NYLORUN_HARNESS_URL"),
        ("421 Misdirected Request", 421, "NYLORUN_HARNESS_ALLOWED_HOSTS"),
        ("426 Upgrade Required", 426, "version"),
        ("503 Service Unavailable", 503, "passes"),
    ] {
        let (url, asked) = refusing(status).await;
        let error = connect(&url, &token()).await.unwrap_err();
        assert_eq!(error, ConnectError::Refused { status: code });
        assert!(error.to_string().contains(word), "{error}");
        let asked = asked.await.unwrap();
        assert!(asked.starts_with("get /nylorun/harness/v1 http/1.1"), "{asked}");
        assert!(asked.contains("nylorun-harness-api: 1\r\n"), "{asked}");
        assert!(asked.contains(&format!("authorization: bearer {}\r\n", "ab".repeat(32))), "{asked}");
    }
}

#[tokio::test]
async fn nobody_there_is_told_without_the_token() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let error = connect(&format!("ws://{free}/x"), &token()).await.unwrap_err();
    assert!(matches!(error, ConnectError::Failed(_)), "{error}");
    assert!(!error.to_string().contains("abab"));
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_says_nothing_is_given_up_after_ten_seconds() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}/x", listener.local_addr().unwrap());
    assert_eq!(connect(&url, &token()).await.unwrap_err(), ConnectError::Silent);
}

/// A core that upgrades, and what happens then.
async fn pumped<F: Future<Output = ()> + 'static>(
    core: impl FnOnce(WebSocketStream<TcpStream>) -> F + 'static,
    here: impl AsyncFnOnce(&Channel),
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}/x", listener.local_addr().unwrap());
    tokio::task::LocalSet::new()
        .run_until(async move {
            let core = tokio::task::spawn_local(async move {
                let (peer, _) = listener.accept().await.unwrap();
                core(accept_async(peer).await.unwrap()).await;
            });
            let channel = Channel::new(|_| {});
            let Opened { socket, ordered } = connect(&url, &token()).await.unwrap();
            assert!(!ordered, "this core does not say so");
            tokio::join!(pump(socket, &channel), here(&channel));
            core.await.unwrap();
            channel.closed().await
        })
        .await
}

#[tokio::test]
async fn frames_go_both_ways_and_pings_are_answered() {
    let core = async |mut core: WebSocketStream<TcpStream>| {
        core.send(Message::Ping("x".into())).await.unwrap();
        let mut seen = Vec::new();
        while seen.len() < 2 {
            match core.next().await.unwrap().unwrap() {
                Message::Pong(_) => seen.push("pong".to_owned()),
                Message::Text(text) => seen.push(text.to_string()),
                other => panic!("{other:?}"),
            }
        }
        seen.sort();
        assert_eq!(seen, ["pong", r#"{"t":"req","id":1,"m":"hello","p":{}}"#]);
        core.send(Message::text(r#"{"t":"res","id":1,"ok":true,"r":{"a":1}}"#)).await.unwrap();
        core.close(Some(CloseFrame { code: CloseCode::Away, reason: "core is stopping".into() }))
            .await
            .unwrap();
    };
    let reason = pumped(core, async |channel| {
        let result = channel.request::<_, serde_json::Value>("hello", &serde_json::json!({})).await;
        assert_eq!(result.unwrap()["a"], 1);
    });
    assert_eq!(reason.await, "core closed: core is stopping");
}

#[tokio::test]
async fn a_binary_message_closes_with_1007() {
    let core = async |mut core: WebSocketStream<TcpStream>| {
        core.send(Message::Binary(vec![1].into())).await.unwrap();
        match core.next().await.unwrap().unwrap() {
            Message::Close(Some(frame)) => {
                assert_eq!(u16::from(frame.code), 1007);
                assert_eq!(frame.reason.as_str(), "Harness API frames are JSON text");
            }
            other => panic!("{other:?}"),
        }
    };
    pumped(core, async |_| {}).await;
}

#[tokio::test]
async fn closing_the_channel_closes_the_socket_in_order() {
    let core = async |mut core: WebSocketStream<TcpStream>| match core.next().await.unwrap().unwrap() {
        Message::Close(Some(frame)) => {
            assert_eq!((u16::from(frame.code), frame.reason.as_str()), (1000, "the harness stops"));
        }
        other => panic!("{other:?}"),
    };
    pumped(core, async |channel| channel.close(1000, "the harness stops")).await;
}

#[tokio::test]
async fn a_core_that_vanishes_closes_the_channel() {
    let reason = pumped(async |core| drop(core), async |_| {}).await;
    assert!(reason.contains("socket failed") || reason.contains("gone"), "{reason}");
}

#[tokio::test]
async fn a_frame_of_sixty_mebibytes_arrives_whole() {
    let size = 60 << 20;
    let core = async move |mut core: WebSocketStream<TcpStream>| {
        let text = format!(r#"{{"t":"res","id":1,"ok":true,"r":"{}"}}"#, "x".repeat(size));
        core.next().await.unwrap().unwrap();
        core.send(Message::text(text)).await.unwrap();
        let _ = core.close(None).await;
    };
    pumped(core, async |channel| {
        let result = channel.request::<_, serde_json::Value>("transcript.read", &serde_json::json!({})).await;
        assert_eq!(result.unwrap().as_str().unwrap().len(), size);
    })
    .await;
}
