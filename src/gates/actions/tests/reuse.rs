//! Connections that are kept: a delivery is sent once, whatever becomes of the connection it was given.

use std::sync::mpsc;

use super::*;

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

#[tokio::test]
async fn a_connection_is_used_again() {
    let peer = Peer::answering(OK);
    let transport = open();
    for _ in 0..5 {
        assert_eq!(told(&transport.post(delivery(&peer.url("/"))).await), "Response 200");
    }
    assert_eq!((peer.connections(), peer.requests().len()), (1, 5));
}

#[tokio::test]
async fn a_connection_that_the_endpoint_closed_while_it_was_idle_loses_nothing() {
    // Answers once on each connection and closes it without having said so.
    let (closed, closings) = mpsc::channel();
    let peer = Peer::new(move |mut side| {
        side.request();
        side.say(OK);
        drop(side);
        closed.send(()).unwrap();
    });
    let transport = open();
    for round in 1..=200 {
        assert_eq!(told(&transport.post(delivery(&peer.url("/"))).await), "Response 200", "{round}");
        // The end is with the kernel by now; the library, whose thread this is, has not looked yet.
        closings.recv().unwrap();
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(peer.requests().len(), round);
    }
}

#[tokio::test]
async fn an_endpoint_that_closes_after_reading_sees_a_request_once_on_a_used_connection_too() {
    let peer = Peer::new(|mut side| {
        side.request();
        side.say(OK);
        side.request();
    });
    let transport = open();
    assert_eq!(told(&transport.post(delivery(&peer.url("/first"))).await), "Response 200");
    assert_eq!(told(&transport.post(delivery(&peer.url("/second"))).await), "Lost RESET");
    tokio::time::sleep(Duration::from_millis(300)).await;
    let seen: Vec<String> = peer.requests().into_iter().map(|request| request.line).collect();
    assert_eq!(seen, ["POST /first HTTP/1.1", "POST /second HTTP/1.1"]);
    assert_eq!(peer.connections(), 1);
}

#[tokio::test]
async fn an_idle_connection_is_given_up_before_servers_usually_close_it() {
    let peer = Peer::answering(OK);
    let transport = open();
    assert_eq!(told(&transport.post(delivery(&peer.url("/"))).await), "Response 200");
    tokio::time::sleep(crate::gates::outbound::IDLE_CONNECTION + Duration::from_millis(300)).await;
    assert_eq!(told(&transport.post(delivery(&peer.url("/"))).await), "Response 200");
    assert_eq!(peer.connections(), 2);
}

#[tokio::test]
async fn a_delivery_that_was_given_up_takes_its_connection_with_it() {
    let (gone, closings) = mpsc::channel();
    let peer = Peer::new(move |mut side| {
        side.request();
        side.until_closed();
        gone.send(()).unwrap();
    });
    let transport = open();
    let post = transport.post(delivery(&peer.url("/")));
    assert!(tokio::time::timeout(Duration::from_millis(200), post).await.is_err());
    let closed = tokio::task::spawn_blocking(move || closings.recv_timeout(Duration::from_secs(10)));
    assert_eq!(closed.await.unwrap(), Ok(()));
}

#[tokio::test]
async fn deliveries_at_once_have_a_connection_each() {
    let peer = Peer::new(|mut side| {
        side.request();
        std::thread::sleep(Duration::from_millis(200));
        side.say(OK);
        side.until_closed();
    });
    let transport = open();
    let posts = (0..8).map(|_| transport.post(delivery(&peer.url("/"))));
    let answers = futures_util::future::join_all(posts).await;
    assert!(answers.iter().all(|answered| told(answered) == "Response 200"));
    assert_eq!((peer.connections(), peer.requests().len()), (8, 8));
}

#[test]
fn each_thread_watches_the_connections_that_it_posts_on() {
    let peer = Peer::answering(OK);
    let transport = open();
    let url = peer.url("/");
    for _ in 0..3 {
        let (transport, url) = (transport.clone(), url.clone());
        let posting = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                for _ in 0..2 {
                    assert_eq!(told(&transport.post(delivery(&url)).await), "Response 200");
                }
            });
        });
        posting.join().unwrap();
    }
    assert_eq!((peer.connections(), peer.requests().len()), (3, 6));
}
