//! One observer: replay from the record, then live, in one stream without gap or repetition.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::broadcast::error::RecvError;

use super::Observed;
use super::feeds::{FeedItem, Subscription};
use crate::limits::RECORD_PAGE;
use crate::model::event::{EventKind, cursor};
use crate::model::ids::SessionId;
use crate::ports::store::{RecordRow, StoreError, StoreHandle};

/// One observer of one session. It reads only when it is asked for more, so a slow client slows only itself.
pub struct Observer {
    store: StoreHandle,
    session: SessionId,
    feed: Subscription,
    next: i64,
    page: VecDeque<RecordRow>,
    /// The record must be read before the ring counts: at the start, and after falling behind.
    behind: bool,
    previews: bool,
}

impl Observer {
    pub(super) fn new(
        store: StoreHandle,
        session: SessionId,
        feed: Subscription,
        next: i64,
        previews: bool,
    ) -> Self {
        Self { store, session, feed, next, page: VecDeque::new(), behind: true, previews }
    }

    /// The next thing to show; `None` ends the stream (the session is gone, the Tenant closes).
    pub async fn next(&mut self) -> Option<Observed> {
        loop {
            if let Some(row) = self.page.pop_front() {
                if let Some(shown) = self.show(row.seq, row.kind, row.body) {
                    return Some(shown);
                }
                continue;
            }
            if self.behind {
                self.read_page().await?;
                continue;
            }
            match self.feed.receiver.recv().await {
                Ok(FeedItem::Event { seq, kind, body }) => {
                    if seq > self.next {
                        self.behind = true;
                    } else if seq == self.next
                        && let Some(shown) = self.show(seq, kind, body)
                    {
                        return Some(shown);
                    }
                }
                Ok(FeedItem::Preview(text)) if self.previews => return Some(Observed::Preview(text)),
                Ok(FeedItem::Preview(_)) => {}
                Err(RecvError::Lagged(_)) => self.behind = true,
                Err(RecvError::Closed) => return None,
            }
        }
    }

    fn show(&mut self, seq: i64, kind: EventKind, body: Arc<str>) -> Option<Observed> {
        self.next = seq + 1;
        let shown = Observed::Event { cursor: cursor(&self.session, seq), kind: kind.as_str(), body };
        (!kind.is_internal()).then_some(shown)
    }

    /// Reads one page; the ring counts again once the record has no more. A failed read is tried again.
    async fn read_page(&mut self) -> Option<()> {
        let mut delay_ms = 100;
        loop {
            let (session, from) = (self.session.clone(), self.next);
            let read = self.store.read(move |reads| {
                let exists = reads.session(&session)?.is_some();
                Ok::<_, StoreError>((exists, reads.record(&session, from, RECORD_PAGE)?))
            });
            match read.await {
                Ok((false, _)) | Err(StoreError::Closed) => return None,
                Ok((true, rows)) => {
                    self.behind = rows.len() == RECORD_PAGE;
                    self.page = rows.into();
                    return Some(());
                }
                Err(error) => {
                    tracing::warn!(session = %self.session, %error, "an observer could not read the record");
                    tokio::time::sleep(std::time::Duration::from_millis(delay_ms)).await;
                    delay_ms = (delay_ms * 2).min(2_000);
                }
            }
        }
    }
}
