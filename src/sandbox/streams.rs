//! What is kept of a command's output: its beginning and its end, in bounded memory however much it writes
//! (spec: sandbox, section 13).

use std::collections::VecDeque;

use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::limits::STREAM_CHARS;

/// Bytes of each end: enough for its characters, however wide.
const END_BYTES: usize = STREAM_CHARS / 2 * 4;

/// One stream of a command.
#[derive(Debug, Default)]
pub struct Kept {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    /// Characters in all.
    chars: usize,
}

impl Kept {
    /// Takes what was written.
    pub fn push(&mut self, bytes: &[u8]) {
        self.chars += bytes.iter().filter(|byte| **byte & 0xC0 != 0x80).count();
        let room = END_BYTES.saturating_sub(self.head.len()).min(bytes.len());
        let (first, rest) = bytes.split_at(room);
        self.head.extend_from_slice(first);
        let kept = &rest[rest.len().saturating_sub(END_BYTES)..];
        let over = (self.tail.len() + kept.len()).saturating_sub(END_BYTES);
        self.tail.drain(..over.min(self.tail.len()));
        self.tail.extend(kept);
    }

    /// Reads a stream to its end.
    pub async fn drain(mut stream: impl AsyncRead + Unpin) -> Self {
        let mut kept = Self::default();
        let mut buffer = vec![0; 64 * 1024];
        // A stream that breaks has ended.
        while let Ok(size) = stream.read(&mut buffer).await {
            if size == 0 {
                break;
            }
            kept.push(&buffer[..size]);
        }
        kept
    }

    /// The text, and whether its middle is missing.
    #[must_use]
    pub fn text(&self) -> (String, bool) {
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        if self.chars <= STREAM_CHARS {
            // Everything was kept: both ends together are the whole.
            let whole = [self.head.as_slice(), tail.as_slice()].concat();
            return (String::from_utf8_lossy(&whole).into_owned(), false);
        }
        let half = STREAM_CHARS / 2;
        let head: String = String::from_utf8_lossy(&self.head).chars().take(half).collect();
        let end = if tail.len() < END_BYTES { [self.head.as_slice(), &tail].concat() } else { tail };
        let end = String::from_utf8_lossy(&end).into_owned();
        let skip = end.chars().count().saturating_sub(half);
        let tail: String = end.chars().skip(skip).collect();
        let left = self.chars - STREAM_CHARS;
        (format!("{head}\n… {left} characters left out …\n{tail}"), true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kept(pieces: &[&[u8]]) -> Kept {
        let mut kept = Kept::default();
        pieces.iter().for_each(|piece| kept.push(piece));
        kept
    }

    #[test]
    fn what_fits_is_kept_whole_and_what_does_not_loses_its_middle() {
        let whole = "é".repeat(STREAM_CHARS);
        assert_eq!(kept(&[whole.as_bytes()]).text(), (whole, false));
        let long = format!("{}{}{}", "a".repeat(15_000), "b".repeat(7), "c".repeat(15_000));
        let (text, cut) = kept(&[long.as_bytes()]).text();
        assert!(cut && text.starts_with(&"a".repeat(15_000)) && text.ends_with(&"c".repeat(15_000)));
        assert!(text.contains("\n… 7 characters left out …\n"), "{}", &text[14_990..15_060]);
        assert_eq!(kept(&[b"\xff\xfe"]).text().0, "\u{FFFD}\u{FFFD}");
    }

    #[test]
    fn a_flood_takes_no_more_memory_than_both_ends() {
        let mut flood = Kept::default();
        for _ in 0..10_000 {
            flood.push(&[b'y'; 4096]);
        }
        assert!(flood.head.len() <= END_BYTES && flood.tail.len() <= END_BYTES);
        let (text, cut) = flood.text();
        assert!(cut && text.chars().count() < STREAM_CHARS + 60);
        assert!(text.contains(&format!("… {} characters", 40_960_000 - STREAM_CHARS)));
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(text in "[a-zé\n]{0,400}", at in 0_usize..400) {
            let times = 200;
            let long = text.repeat(times);
            let mut cut = at.min(long.len());
            while !long.is_char_boundary(cut) { cut -= 1; }
            let (a, b) = long.as_bytes().split_at(cut);
            prop_assert_eq!(kept(&[a, b]).text(), kept(&[long.as_bytes()]).text());
        }
    }
}
