//! Statements that diesel would prepare anew each time, kept prepared.
//!
//! diesel never keeps an UPDATE (it may be built from a changeset that varies) and has no words for savepoints. Ours
//! always say the same, and they are on the path of every transaction: [`prepared!`] gives each place in the code an
//! identity under which diesel's cache keeps its statement.

use std::marker::PhantomData;

use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::sqlite::Sqlite;

/// A statement whose text depends on `Site` alone.
pub(super) struct Prepared<Site, Q> {
    query: Q,
    site: PhantomData<Site>,
}

impl<Site, Q> Prepared<Site, Q> {
    /// The caller promises that `query` has the same text each time it is made for this `Site`.
    pub fn new(query: Q) -> Self {
        Self { query, site: PhantomData }
    }
}

impl<Site, Q: QueryFragment<Sqlite>> QueryFragment<Sqlite> for Prepared<Site, Q> {
    fn walk_ast<'b>(&'b self, pass: AstPass<'_, 'b, Sqlite>) -> QueryResult<()> {
        self.query.walk_ast(pass)
    }
}

impl<Site: 'static, Q> QueryId for Prepared<Site, Q> {
    type QueryId = Site;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl<Site, Q> RunQueryDsl<SqliteConnection> for Prepared<Site, Q> {}

/// A statement that is only words.
pub(super) struct Words(pub &'static str);

impl QueryFragment<Sqlite> for Words {
    fn walk_ast<'b>(&'b self, mut pass: AstPass<'_, 'b, Sqlite>) -> QueryResult<()> {
        pass.push_sql(self.0);
        Ok(())
    }
}

/// An UPDATE, put together from diesel's own parts.
pub(super) struct Change<T, C, W> {
    pub table: T,
    pub changes: C,
    pub filter: W,
}

impl<T, C, W> QueryFragment<Sqlite> for Change<T, C, W>
where
    T: QueryFragment<Sqlite>,
    C: QueryFragment<Sqlite>,
    W: QueryFragment<Sqlite>,
{
    fn walk_ast<'b>(&'b self, mut pass: AstPass<'_, 'b, Sqlite>) -> QueryResult<()> {
        pass.push_sql("UPDATE ");
        self.table.walk_ast(pass.reborrow())?;
        pass.push_sql(" SET ");
        self.changes.walk_ast(pass.reborrow())?;
        pass.push_sql(" WHERE ");
        self.filter.walk_ast(pass)
    }
}

/// Executes an UPDATE of `table` where `filter` holds; answers how many rows it changed.
macro_rules! change {
    ($conn:expr, $table:expr, $filter:expr, $changes:expr) => {
        $crate::store::prepared::prepared!(
            $conn,
            $crate::store::prepared::Change {
                table: $table,
                changes: diesel::AsChangeset::as_changeset($changes),
                filter: $filter,
            }
        )
    };
}

/// Executes a statement that always has the same text at this place; answers how many rows it changed.
macro_rules! prepared {
    ($conn:expr, $query:expr) => {{
        struct Site;
        diesel::RunQueryDsl::execute($crate::store::prepared::Prepared::<Site, _>::new($query), $conn)
    }};
}

pub(super) use {change, prepared};
