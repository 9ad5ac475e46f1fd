//! The WebSocket message reader: fragments, bounds, and that no memory is taken before they were looked at.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const LIMIT: usize = 1000;

/// A frame as a client writes it.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [0xA1, 0x02, 0xF3, 0x44];
    let mut bytes = vec![first];
    match payload.len() {
        size @ 0..=125 => bytes.push(0x80 | size as u8),
        size @ 126..=65_535 => {
            bytes.push(0x80 | 126);
            bytes.extend_from_slice(&(size as u16).to_be_bytes());
        }
        size => {
            bytes.push(0x80 | 127);
            bytes.extend_from_slice(&(size as u64).to_be_bytes());
        }
    }
    bytes.extend_from_slice(&mask);
    bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key));
    bytes
}

/// Everything in these bytes when they come in chunks of this size.
fn read(bytes: &[u8], chunk: usize, limit: usize) -> Result<Vec<Event>, Violation> {
    let (mut decoder, mut events) = (Decoder::new(limit), Vec::new());
    for part in bytes.chunks(chunk.max(1)) {
        let mut part = Bytes::copy_from_slice(part);
        while let Some(event) = decoder.read(&mut part)? {
            events.push(event);
        }
        assert!(part.is_empty(), "it stopped with bytes in hand");
    }
    Ok(events)
}

fn text(text: &str) -> Event {
    Event::Text(text.to_owned())
}

#[test]
fn a_message_in_parts_is_one_message_and_control_frames_come_between() {
    let bytes = [
        frame(0x01, b"a\xc3"),
        frame(0x89, b"p"),
        frame(0x00, b""),
        frame(0x8A, b""),
        frame(0x80, b"\xa9b"),
        frame(0x88, b"\x03\xe8bye"),
    ]
    .concat();
    let expected =
        vec![Event::Ping(Bytes::from_static(b"p")), Event::Pong, text("aéb"), Event::Close(Some(1000))];
    for chunk in [1, 2, 3, 7, 1000] {
        assert_eq!(read(&bytes, chunk, LIMIT), Ok(expected.clone()), "chunks of {chunk}");
    }
}

#[test]
fn what_is_no_frame_closes_with_1002() {
    let unmasked = vec![0x81, 0x01, b'a'];
    let long_ping = frame(0x89, &[0; 126]);
    let inside = [frame(0x01, b"a"), frame(0x81, b"b")].concat();
    for (bytes, what) in [
        (frame(0xC1, b"a"), "reserved bit"),
        (frame(0x91, b"a"), "reserved bit"),
        (unmasked, "no mask"),
        (frame(0x83, b"a"), "unknown kind"),
        (frame(0x8B, b""), "unknown control"),
        (frame(0x09, b"a"), "ping in parts"),
        (long_ping, "long ping"),
        (frame(0x80, b"a"), "continues nothing"),
        (inside, "a message inside another"),
        (frame(0x88, b"\x03"), "half a code"),
        (frame(0x88, b"\x03\xed"), "1005"),
        (frame(0x88, b"\x03\xf7"), "1015"),
        (frame(0x88, b"\x00\x00"), "0"),
    ] {
        assert_eq!(read(&bytes, 1, LIMIT).expect_err(what).code(), 1002, "{what}");
    }
}

#[test]
fn what_is_no_text_closes_with_1007() {
    for bytes in [
        frame(0x82, b"{}"),
        frame(0x02, b"{}"),
        frame(0x81, b"\xff"),
        [frame(0x01, b"\xc3"), frame(0x80, b"")].concat(),
        frame(0x88, b"\x03\xe8\xff"),
    ] {
        assert_eq!(read(&bytes, 2, LIMIT), Err(Violation::NotText));
    }
    // A surrogate is not UTF-8 either.
    assert_eq!(read(&frame(0x81, b"\xed\xa0\x80"), 9, LIMIT), Err(Violation::NotText));
    assert_eq!(Violation::NotText.code(), 1007);
    assert_eq!(Violation::NotText.to_string(), "Harness API frames are JSON text");
}

#[test]
fn a_message_that_is_too_large_is_refused_by_its_head_alone() {
    let whole = frame(0x81, &[b'a'; LIMIT]);
    assert_eq!(read(&whole, 100, LIMIT), Ok(vec![text(&"a".repeat(LIMIT))]));
    let head = &frame(0x81, &[b'a'; LIMIT + 1])[..8];
    assert_eq!(read(head, 1, LIMIT), Err(Violation::TooLarge));
    let huge = [0x81, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0];
    assert_eq!(read(&huge, 14, LIMIT), Err(Violation::TooLarge));
    let parts = [frame(0x01, &[b'a'; LIMIT]), frame(0x80, b"a")[..6].to_vec()].concat();
    assert_eq!(read(&parts, 1, LIMIT), Err(Violation::TooLarge), "its parts together");
    assert_eq!(Violation::TooLarge.code(), 1009);
}

#[test]
fn nothing_is_taken_for_a_frame_before_its_bytes_are_there() {
    let mut decoder = Decoder::new(64 * 1024 * 1024);
    let mut head = Bytes::copy_from_slice(&[0x81, 0xFF, 0, 0, 0, 0, 4, 0, 0, 0, 1, 2, 3, 4]);
    assert_eq!(decoder.read(&mut head), Ok(None));
    assert_eq!(decoder.message.as_ref().map_or(0, Vec::capacity), 0);
}

/// One thing that a peer sends, in as many parts as it likes.
fn said() -> impl Strategy<Value = (Event, Vec<Vec<u8>>)> {
    let message = (".{0,60}", vec(0_usize..60, 0..4)).prop_map(|(text, mut cuts)| {
        let bytes = text.as_bytes();
        cuts.retain(|cut| *cut < bytes.len());
        cuts.sort_unstable();
        let mut parts: Vec<&[u8]> = Vec::new();
        let mut from = 0;
        for cut in cuts {
            parts.push(&bytes[from..cut]);
            from = cut;
        }
        parts.push(&bytes[from..]);
        let last = parts.len() - 1;
        let frames = parts.iter().enumerate().map(|(n, part)| {
            frame(if n == 0 { 0x01 } else { 0x00 } | if n == last { 0x80 } else { 0x00 }, part)
        });
        (Event::Text(text.clone()), frames.collect())
    });
    let ping = vec(any::<u8>(), 0..=125)
        .prop_map(|payload| (Event::Ping(Bytes::from(payload.clone())), vec![frame(0x89, &payload)]));
    let pong = vec(any::<u8>(), 0..=125).prop_map(|payload| (Event::Pong, vec![frame(0x8A, &payload)]));
    prop_oneof![4 => message, 1 => ping, 1 => pong]
}

proptest! {
    // With some ten frames in each case: more than 100,000 generated frames.
    #![proptest_config(ProptestConfig { cases: 12_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_said_is_read_again_however_it_is_cut(all in vec(said(), 1..10), chunk in 1_usize..40) {
        let bytes: Vec<u8> = all.iter().flat_map(|(_, frames)| frames.concat()).collect();
        let expected: Vec<Event> = all.into_iter().map(|(event, _)| event).collect();
        prop_assert_eq!(read(&bytes, chunk, LIMIT), Ok(expected));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_read_or_refused_and_the_cut_makes_no_difference(
        first in prop_oneof![any::<u8>(), Just(0x81), Just(0x01), Just(0x80), Just(0x88), Just(0x89)],
        rest in vec(any::<u8>(), 0..80),
        chunk in 1_usize..20,
    ) {
        let bytes = [&[first][..], &rest].concat();
        prop_assert_eq!(read(&bytes, chunk, LIMIT), read(&bytes, bytes.len(), LIMIT));
    }
}
