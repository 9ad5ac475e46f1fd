//! A request body that knows whether it was handed over, and is handed over at most once.
//!
//! An endpoint cannot act before it has the whole body. So the last piece decides: until the HTTP library has taken it,
//! nothing can have happened, and the body can still be withdrawn; from then on anything may have. Whoever comes first,
//! the library or [`Hand::withdraw`], wins for good: a library that would send the request a second time finds nothing.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;

/// Bytes that the library takes at a time.
const PIECE: usize = 64 * 1024;

const HELD: u8 = 0;
const HANDED: u8 = 1;
const WITHDRAWN: u8 = 2;

/// Where the last piece is.
#[derive(Debug, Default)]
pub(super) struct Hand(AtomicU8);

impl Hand {
    /// Takes the body back. `true`: it never was, and never will be, handed over whole.
    pub fn withdraw(&self) -> bool {
        match self.0.compare_exchange(HELD, WITHDRAWN, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(was) => was == WITHDRAWN,
        }
    }

    fn give(&self) -> bool {
        self.0.compare_exchange(HELD, HANDED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// The body was withdrawn, or was taken before.
#[derive(Debug, thiserror::Error)]
#[error("the request was withdrawn")]
pub(super) struct Withdrawn;

/// The body as the library reads it.
pub(super) struct Upload {
    rest: Bytes,
    hand: Arc<Hand>,
    done: bool,
}

impl Upload {
    pub fn new(body: Bytes, hand: Arc<Hand>) -> Self {
        Self { rest: body, hand, done: false }
    }
}

impl Stream for Upload {
    type Item = Result<Bytes, Withdrawn>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.done {
            return Poll::Ready(None);
        }
        if self.rest.len() > PIECE {
            return Poll::Ready(Some(Ok(self.rest.split_to(PIECE))));
        }
        self.done = true;
        let last = std::mem::take(&mut self.rest);
        Poll::Ready(Some(if self.hand.give() { Ok(last) } else { Err(Withdrawn) }))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;

    use super::*;

    fn upload(size: usize) -> (Upload, Arc<Hand>) {
        let hand = Arc::new(Hand::default());
        (Upload::new(Bytes::from(vec![7; size]), Arc::clone(&hand)), hand)
    }

    #[tokio::test]
    async fn the_last_piece_decides_whether_a_body_was_handed_over() {
        for (size, pieces) in [(1, 1), (PIECE, 1), (PIECE + 1, 2), (3 * PIECE, 3)] {
            let (mut body, hand) = upload(size);
            let mut taken = 0;
            for _ in 1..pieces {
                taken += body.next().await.unwrap().unwrap().len();
            }
            taken += body.next().await.unwrap().unwrap().len();
            assert_eq!(taken, size);
            assert!(!hand.withdraw() && body.next().await.is_none());
        }
        let (mut body, hand) = upload(2 * PIECE);
        body.next().await.unwrap().unwrap();
        assert!(hand.withdraw() && hand.withdraw());
        assert!(body.next().await.unwrap().is_err() && body.next().await.is_none());
    }

    #[tokio::test]
    async fn a_body_is_handed_over_once() {
        let (mut first, hand) = upload(5);
        let mut second = Upload::new(Bytes::from_static(b"again"), hand);
        assert!(first.next().await.unwrap().is_ok());
        assert!(second.next().await.unwrap().is_err());
    }
}
