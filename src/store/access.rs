//! One transaction on a connection: how it runs statements, when it takes its savepoint, what ends it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use diesel::prelude::*;
use nylorun_actors::model::Micros;
use nylorun_actors::model::ids::{SessionId, TenantId, TurnId, WorkerId};
use nylorun_actors::ports::store::{Committed, StoreResult};
use nylorun_actors::ports::{Clock, Entropy, StoreError};

use super::error::store_error;
use super::hot::{Hot, HotSessions};
use super::prepared::{Words, change, prepared};
use super::rows;
use super::schema::{events, logs, sessions};

/// What all threads of one store share.
pub(super) struct Shared {
    pub tenant: TenantId,
    pub schema_version: i64,
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
    /// The latest instant that was handed out.
    pub latest: AtomicI64,
}

impl Shared {
    /// The clock, never earlier than it was.
    pub fn now(&self) -> Micros {
        let now = self.clock.now().0;
        Micros(self.latest.fetch_max(now, Ordering::Relaxed).max(now))
    }
}

/// A transaction of the writer, or a read of a reader (then without `writer`).
pub(super) struct Access<'a> {
    pub conn: &'a mut SqliteConnection,
    pub shared: &'a Shared,
    writer: Option<&'a mut HotSessions>,
    /// Set by the first error that ends the transaction.
    failure: Option<StoreError>,
    /// A savepoint stands: it has written.
    wrote: bool,
    pub events: Vec<Committed>,
    /// Ids that this transaction has drawn: nobody has ever had them.
    pub drawn: Vec<String>,
}

const NO_WRITER: &str = "a read cannot write";

impl<'a> Access<'a> {
    pub fn reading(conn: &'a mut SqliteConnection, shared: &'a Shared) -> Self {
        Self {
            conn,
            shared,
            writer: None,
            failure: None,
            wrote: false,
            events: Vec::new(),
            drawn: Vec::new(),
        }
    }

    pub fn writing(conn: &'a mut SqliteConnection, shared: &'a Shared, hot: &'a mut HotSessions) -> Self {
        Self {
            conn,
            shared,
            writer: Some(hot),
            failure: None,
            wrote: false,
            events: Vec::new(),
            drawn: Vec::new(),
        }
    }

    /// Runs a statement. The first error that is not about the row at hand ends the transaction: SQLite may have undone
    /// more than the statement (it ends a transaction by itself when the disk is full), so nothing after it counts.
    pub fn run<T>(
        &mut self,
        statement: impl FnOnce(&mut SqliteConnection) -> QueryResult<T>,
    ) -> StoreResult<T> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        statement(self.conn).map_err(store_error).inspect_err(|error| {
            if !matches!(error, StoreError::Conflict(_)) {
                self.failure = Some(error.clone());
            }
        })
    }

    /// Runs a statement that writes. The first one takes the savepoint to which a failed transaction goes back.
    pub fn write<T>(
        &mut self,
        statement: impl FnOnce(&mut SqliteConnection) -> QueryResult<T>,
    ) -> StoreResult<T> {
        if !self.wrote {
            if self.writer.is_none() {
                return Err(StoreError::ReadOnly(NO_WRITER.to_owned()));
            }
            self.run(|c| prepared!(c, Words("SAVEPOINT job")))?;
            self.wrote = true;
        }
        self.run(statement)
    }

    /// Ends the transaction inside its group. `Ok` says whether it has written anything; an error says that SQLite lost
    /// the whole group.
    pub fn end(&mut self, keep: bool) -> StoreResult<bool> {
        if let Some(writer) = &mut self.writer {
            if keep { writer.keep() } else { writer.roll_back() }
        }
        if !self.wrote {
            return self.failure.take().map_or(Ok(false), |failure| self.still_open(failure));
        }
        let undone = if keep { Ok(0) } else { prepared!(self.conn, Words("ROLLBACK TO job")) };
        undone.and_then(|_| prepared!(self.conn, Words("RELEASE job"))).map_err(store_error)?;
        Ok(keep)
    }

    /// After a failure without a savepoint: whether SQLite has ended the group's transaction (as it does on some errors).
    /// It does not say, but a second BEGIN is refused inside a transaction.
    fn still_open(&mut self, failure: StoreError) -> StoreResult<bool> {
        if prepared!(self.conn, Words("BEGIN")).is_err() {
            return Ok(false);
        }
        // The group is lost either way.
        let _ = prepared!(self.conn, Words("ROLLBACK"));
        Err(failure)
    }

    /// Why the transaction cannot commit, if it cannot.
    pub fn failure(&self) -> Option<StoreError> {
        self.failure.clone()
    }

    /// Writes the heads that the transaction has changed so far. At its end, and before a query over all sessions.
    pub fn flush(&mut self) -> StoreResult<()> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        for (no, head) in writer.take_dirty() {
            self.write(|c| {
                change!(
                    c,
                    sessions::table,
                    sessions::no.eq(no),
                    (
                        sessions::status.eq(head.status.as_str()),
                        sessions::active_turn_id.eq(head.active_turn_id.as_ref().map(TurnId::as_str)),
                        sessions::last_turn_id.eq(head.last_turn_id.as_ref().map(TurnId::as_str)),
                        sessions::owner.eq(head.owner.as_ref().map(WorkerId::as_str)),
                        sessions::epoch.eq(head.epoch),
                        sessions::owner_expires_at.eq(head.owner_expires_at.map(|at| at.0)),
                    )
                )
            })?;
        }
        Ok(())
    }

    /// The writer's memory, if this is the writer.
    pub fn memory(&mut self) -> Option<&mut HotSessions> {
        self.writer.as_deref_mut()
    }

    /// The writer's memory of sessions.
    pub fn hot(&mut self) -> StoreResult<&mut HotSessions> {
        self.writer.as_deref_mut().ok_or_else(|| StoreError::ReadOnly(NO_WRITER.to_owned()))
    }

    /// Reads the hot row of a session.
    fn load_session(&mut self, id: &SessionId) -> StoreResult<Option<Hot>> {
        let row: Option<rows::Session> = self.run(|c| {
            sessions::table
                .filter(sessions::id.eq(id.as_str()))
                .select(rows::Session::as_select())
                .get_result(c)
                .optional()
        })?;
        row.map(|row| {
            let no = row.no;
            Ok(Hot { no, head: row.head()?, next_seq: None, doc: None, pin: None, dirty: false, open: None })
        })
        .transpose()
    }

    /// Looks at a session: from memory in the writer, from the database in a reader.
    pub fn peek<T>(&mut self, id: &SessionId, look: impl FnOnce(&Hot) -> T) -> StoreResult<Option<T>> {
        if let Some(hot) = self.writer.as_ref().and_then(|w| w.get(id)) {
            return Ok(Some(look(hot)));
        }
        let Some(hot) = self.load_session(id)? else { return Ok(None) };
        let seen = look(&hot);
        if let Some(writer) = &mut self.writer {
            writer.remember(id.clone(), hot);
        }
        Ok(Some(seen))
    }

    /// Looks at a session that must exist.
    pub fn need<T>(&mut self, id: &SessionId, look: impl FnOnce(&Hot) -> T) -> StoreResult<T> {
        self.peek(id, look)?.ok_or_else(|| StoreError::Missing(format!("session {id}")))
    }

    /// The number of a session's record, which it keeps when the session is deleted.
    pub fn log_no(&mut self, id: &SessionId) -> StoreResult<Option<i64>> {
        if let Some(hot) = self.writer.as_ref().and_then(|w| w.get(id)) {
            return Ok(Some(hot.no));
        }
        self.run(|c| {
            logs::table.filter(logs::session_id.eq(id.as_str())).select(logs::no).get_result(c).optional()
        })
    }

    /// The next `seq` of a record, from the database.
    pub fn load_head(&mut self, log_no: i64) -> StoreResult<i64> {
        // Not `ORDER BY … LIMIT 1`: a statement with a bound limit is prepared anew when the limit is bound.
        let last: Option<i64> = self.run(|c| {
            events::table
                .filter(events::log_no.eq(log_no))
                .select(diesel::dsl::max(events::seq))
                .get_result(c)
        })?;
        Ok(last.map_or(0, |seq| seq + 1))
    }
}
