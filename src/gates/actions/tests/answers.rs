//! Answers, and how much of them is taken.

use super::*;

async fn posted(answer: &'static str) -> Answered {
    let peer = Peer::answering(answer);
    let answered = open().post(delivery(&peer.url("/"))).await;
    assert_eq!(peer.requests().len(), 1);
    answered
}

#[tokio::test]
async fn an_answer_is_its_status_its_two_headers_and_its_body() {
    let answered =
        posted("HTTP/1.1 200 OK\r\nNylorun-Outcome: 1\r\nRetry-After: 1.5\r\ncontent-length: 2\r\n\r\n{}")
            .await;
    let expected = Answered::Response {
        status: 200,
        tagged: true,
        retry_after: Some(Duration::from_millis(1500)),
        body: b"{}".to_vec(),
    };
    assert_eq!(answered, expected);
    for (head, tagged) in
        [("", false), ("nylorun-outcome: 0\r\n", false), ("nylorun-outcome: true\r\n", false)]
    {
        let answer = format!("HTTP/1.1 503 Busy\r\n{head}content-length: 0\r\n\r\n").leak();
        let expected = Answered::Response { status: 503, tagged, retry_after: None, body: Vec::new() };
        assert_eq!(posted(answer).await, expected);
    }
    for status in [202, 204, 400, 404, 409, 429, 500] {
        let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n").leak();
        assert_eq!(told(&posted(answer).await), format!("Response {status}"));
    }
}

#[test]
fn a_wait_is_in_seconds_or_until_a_date_and_at_most_five_minutes() {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let date = |seconds: u64| httpdate::fmt_http_date(now + Duration::from_secs(seconds));
    let ms = |text: &str| wait(text, now).map(|wait| wait.as_millis());
    for (text, expected) in [("1", 1000), (" 2 ", 2000), ("0.25", 250), (".5", 500), ("300", 300_000)] {
        assert_eq!(ms(text), Some(expected), "{text}");
    }
    assert_eq!((ms("301"), ms(&"9".repeat(400))), (Some(300_000), Some(300_000)));
    assert_eq!((ms(&date(7)), ms(&date(900))), (Some(7000), Some(300_000)));
    for none in ["", "0", "0.0", "-1", "1.2.3", ".", "soon", "NaN", "inf", "1e3", &date(0)] {
        assert_eq!(ms(none), None, "{none}");
    }
    assert_eq!(wait(&date(0), now + Duration::from_secs(9)), None);
}

#[tokio::test]
async fn an_answer_that_comes_before_the_body_was_read_is_an_answer() {
    let peer = Peer::new(|mut side| {
        let mut byte = [0];
        side.socket.peek(&mut byte).unwrap();
        side.say("HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno");
        side.until_closed();
    });
    assert_eq!(told(&open().post(large(&peer.url("/"), 1024 * 1024)).await), "Response 413");
}

#[tokio::test]
async fn an_answer_without_a_length_ends_with_its_connection() {
    let peer = Peer::new(|mut side| {
        side.request();
        side.say("HTTP/1.0 200 OK\r\n\r\nall of it");
    });
    let Answered::Response { body, .. } = open().post(delivery(&peer.url("/"))).await else {
        panic!("an answer")
    };
    assert_eq!(body, b"all of it");
}

#[tokio::test]
async fn a_redirect_is_an_answer_like_any_other_and_nobody_goes_there() {
    let elsewhere = Peer::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    for status in [301, 302, 303, 307, 308] {
        let answer = format!(
            "HTTP/1.1 {status} Moved\r\nlocation: {}\r\ncontent-length: 0\r\n\r\n",
            elsewhere.url("/secret")
        );
        assert_eq!(told(&posted(answer.leak()).await), format!("Response {status}"));
    }
    assert_eq!(elsewhere.connections(), 0);
}

#[tokio::test]
async fn an_answer_is_taken_up_to_8_mib_and_not_a_byte_further() {
    // A length that is declared is refused unread.
    let declared = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", ANSWER_BYTES + 1).leak();
    assert_eq!(told(&posted(declared).await), "TooLarge 200");
    let sized = |size: usize, chunked: bool| {
        Peer::new(move |mut side| {
            side.request();
            if chunked {
                side.say("HTTP/1.1 201 OK\r\ntransfer-encoding: chunked\r\n\r\n");
                side.say(&format!("{size:x}\r\n{}\r\n0\r\n\r\n", "x".repeat(size)));
            } else {
                side.say(&format!("HTTP/1.1 201 OK\r\ncontent-length: {size}\r\n\r\n{}", "x".repeat(size)));
            }
            side.until_closed();
        })
    };
    for chunked in [false, true] {
        let peer = sized(ANSWER_BYTES, chunked);
        let Answered::Response { body, .. } = open().post(delivery(&peer.url("/"))).await else {
            panic!("an answer")
        };
        assert_eq!(body.len(), ANSWER_BYTES);
        let peer = sized(ANSWER_BYTES + 1, chunked);
        assert_eq!(told(&open().post(delivery(&peer.url("/"))).await), "TooLarge 201");
    }
    // One that never ends is cut off.
    let endless = Peer::new(|mut side| {
        side.request();
        side.say("HTTP/1.1 500 No\r\ntransfer-encoding: chunked\r\n\r\n");
        let piece = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
        while std::io::Write::write_all(&mut side.socket, piece.as_bytes()).is_ok() {}
    });
    assert_eq!(told(&open().post(delivery(&endless.url("/"))).await), "TooLarge 500");
}

#[tokio::test]
async fn nothing_is_unpacked() {
    let answered =
        posted("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\n\x1f\x0b\x08\x00")
            .await;
    let Answered::Response { body, .. } = answered else { panic!("an answer") };
    assert_eq!(body, b"\x1f\x0b\x08\x00");
}
