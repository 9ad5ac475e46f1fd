//! Opening a store: who may, what is in the file, migrations, the Tenant (spec: durability, sections 3.3 and 19).

use std::fs::{File, OpenOptions as FileOptions, TryLockError};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use diesel::connection::SimpleConnection as _;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use diesel::sqlite::Sqlite;
use diesel_migrations::{EmbeddedMigrations, MigrationHarness as _, embed_migrations};
use nylorun_actors::model::ids::{TenantId, ulid};
use nylorun_actors::ports::{Clock, Entropy};

use super::error::{OpenError, store_error};
use super::schema::tenant;

/// Prompts and sealed keys are nobody else's.
const OWNER_ONLY: u32 = 0o600;

const MIGRATIONS: EmbeddedMigrations = embed_migrations!("migrations/sqlite");

/// The Tenant that a new store is made for.
#[derive(Clone, Debug)]
pub struct NewTenant {
    /// Its id; a fresh one when absent.
    pub id: Option<TenantId>,
    /// In words.
    pub name: String,
}

/// How a store is opened.
pub struct OpenOptions {
    /// The database file; its folder must exist.
    pub path: PathBuf,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub entropy: Arc<dyn Entropy>,
    /// Used when the store is new.
    pub tenant: NewTenant,
    /// Threads for reads, at least one.
    pub readers: usize,
}

impl OpenOptions {
    /// The usual: two readers.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, clock: Arc<dyn Clock>, entropy: Arc<dyn Entropy>) -> Self {
        let tenant = NewTenant { id: None, name: "local".to_owned() };
        Self { path: path.into(), clock, entropy, tenant, readers: 2 }
    }
}

/// Holds the store for this process as long as it lives.
pub(super) struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // The pid in it says who holds it, so it goes first; the lock goes with the file.
        let _ = self.0.set_len(0);
    }
}

/// Takes the lock file beside the database.
pub(super) fn lock(database: &Path) -> Result<Lock, OpenError> {
    let mut path = database.as_os_str().to_owned();
    path.push(".lock");
    let path = PathBuf::from(path);
    let refused = |error: std::io::Error| OpenError::of_io(&path, &error);
    let mut file = FileOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(OWNER_ONLY)
        .open(&path)
        .map_err(refused)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            let pid = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
            return Err(OpenError::InUse { path: database.to_owned(), pid });
        }
        Err(TryLockError::Error(error)) => return Err(refused(error)),
    }
    file.set_len(0).map_err(refused)?;
    file.seek(SeekFrom::Start(0)).map_err(refused)?;
    writeln!(file, "{}", std::process::id()).map_err(refused)?;
    Ok(Lock(file))
}

/// What an opened database says of itself.
pub(super) struct Opened {
    pub conn: SqliteConnection,
    pub tenant: TenantId,
    pub schema_version: i64,
}

/// Migrations known.
pub(super) fn known_migrations() -> Result<Vec<String>, OpenError> {
    let failed = |e: Box<dyn std::error::Error + Send + Sync>| OpenError::MigrationFailed(e.to_string());
    let all = diesel::migration::MigrationSource::<Sqlite>::migrations(&MIGRATIONS).map_err(failed)?;
    Ok(all.iter().map(|m| m.name().version().to_string()).collect())
}

/// A connection to `path` with what every connection of ours needs.
pub(super) fn connect(path: &Path) -> Result<SqliteConnection, OpenError> {
    let io = |reason: &str| OpenError::Io { path: path.to_owned(), reason: reason.to_owned() };
    // Absolute, so that no name is taken for a URI or for `:memory:`.
    let absolute = std::path::absolute(path).map_err(|e| OpenError::of_io(path, &e))?;
    let text = absolute.to_str().ok_or_else(|| io("its path is not UTF-8"))?;
    let mut conn = match SqliteConnection::establish(text) {
        Ok(conn) => conn,
        Err(ConnectionError::BadConnection(reason)) => return Err(io(&reason)),
        Err(error) => return Err(io(&error.to_string())),
    };
    conn.batch_execute("PRAGMA busy_timeout = 5000; PRAGMA foreign_keys = ON; PRAGMA temp_store = MEMORY;")
        .map_err(|e| OpenError::of_store(path, store_error(e)))?;
    Ok(conn)
}

/// A connection that only reads.
pub(super) fn connect_reader(path: &Path) -> Result<SqliteConnection, OpenError> {
    let mut conn = connect(path)?;
    conn.batch_execute("PRAGMA query_only = ON; PRAGMA cache_size = -16000;")
        .map_err(|e| OpenError::of_store(path, store_error(e)))?;
    Ok(conn)
}

/// The writer's connection, with the schema brought up to date and the Tenant there.
pub(super) fn open(options: &OpenOptions) -> Result<Opened, OpenError> {
    let path = &options.path;
    check_header(path)?;
    let known = known_migrations()?;
    let mut conn = connect(path)?;
    let refused = |e: diesel::result::Error| OpenError::of_store(path, store_error(e));
    check_schema(&mut conn, path, &known)?;
    let mode: Mode = diesel::sql_query("PRAGMA journal_mode = WAL").get_result(&mut conn).map_err(refused)?;
    if mode.journal_mode != "wal" {
        let reason = format!("no write-ahead log on this filesystem (it offers {})", mode.journal_mode);
        return Err(OpenError::Io { path: path.clone(), reason });
    }
    // A log of 4,000 pages is copied back at once: pages written again and again are copied once.
    conn.batch_execute(
        "PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 4000; \
         PRAGMA journal_size_limit = 67108864; PRAGMA cache_size = -64000;",
    )
    .map_err(refused)?;
    let tenant = conn.immediate_transaction(|c| prepare(c, options)).map_err(|e| match e {
        Refused::Open(error) => error,
        Refused::Sql(error) => refused(error),
    })?;
    let schema_version = i64::try_from(known.len()).unwrap_or(i64::MAX);
    Ok(Opened { conn, tenant, schema_version })
}

/// Makes an empty file that only its owner may read; SQLite takes it as a new database, and gives its log the same mode.
pub(super) fn create_private(path: &Path) -> std::io::Result<()> {
    FileOptions::new().write(true).create(true).truncate(false).mode(OWNER_ONLY).open(path).map(|_| ())
}

/// What a look at a database finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inspected {
    /// Migrations that it has.
    pub applied: usize,
    /// Migrations that this program knows.
    pub known: usize,
}

/// Looks at a database, also while another process has it open; `None`: it is not there. Nothing is changed.
///
/// # Errors
/// Why it would not open.
pub fn inspect(path: &Path) -> Result<Option<Inspected>, OpenError> {
    if !path.exists() {
        return Ok(None);
    }
    read_header(path)?;
    let known = known_migrations()?;
    let applied = check_schema(&mut connect_reader(path)?, path, &known)?;
    Ok(Some(Inspected { applied, known: known.len() }))
}

/// Refuses a file that SQLite did not write, before SQLite opens it.
fn check_header(path: &Path) -> Result<(), OpenError> {
    create_private(path).map_err(|error| OpenError::of_io(path, &error))?;
    read_header(path)
}

fn read_header(path: &Path) -> Result<(), OpenError> {
    let refused = |e: std::io::Error| OpenError::of_io(path, &e);
    let mut head = Vec::with_capacity(16);
    File::open(path).and_then(|file| file.take(16).read_to_end(&mut head)).map_err(refused)?;
    if head.is_empty() || head == b"SQLite format 3\0" {
        return Ok(());
    }
    Err(OpenError::NotADatabase { path: path.to_owned() })
}

#[derive(QueryableByName)]
struct Count {
    #[diesel(sql_type = BigInt)]
    n: i64,
}

#[derive(QueryableByName)]
struct Mode {
    #[diesel(sql_type = Text)]
    journal_mode: String,
}

#[derive(QueryableByName)]
struct Version {
    #[diesel(sql_type = Text)]
    version: String,
}

/// Refuses a database of somebody else and one that a newer version wrote. Changes nothing. How many migrations it has.
fn check_schema(conn: &mut SqliteConnection, path: &Path, known: &[String]) -> Result<usize, OpenError> {
    let refused = |e: diesel::result::Error| OpenError::of_store(path, store_error(e));
    let mut count =
        |sql: &str| diesel::sql_query(sql).get_result::<Count>(conn).map(|c| c.n).map_err(refused);
    let journal = count("SELECT count(*) AS n FROM sqlite_master WHERE name = '__diesel_schema_migrations'")?;
    if journal == 0 {
        if count("SELECT count(*) AS n FROM sqlite_master")? == 0 {
            return Ok(0);
        }
        let reason = "it holds the tables of another program".to_owned();
        return Err(OpenError::Corrupt { path: path.to_owned(), reason });
    }
    let applied: Vec<Version> =
        diesel::sql_query("SELECT version FROM __diesel_schema_migrations ORDER BY version")
            .load(conn)
            .map_err(refused)?;
    let count = applied.len();
    match applied.into_iter().find(|row| !known.contains(&row.version)) {
        Some(row) => Err(OpenError::SchemaTooNew { found: row.version, known: known.len() }),
        None => Ok(count),
    }
}

/// Why the store was not prepared.
enum Refused {
    Open(OpenError),
    Sql(diesel::result::Error),
}

impl From<diesel::result::Error> for Refused {
    fn from(error: diesel::result::Error) -> Self {
        Self::Sql(error)
    }
}

/// Migrations and the Tenant, in the caller's transaction.
fn prepare(conn: &mut SqliteConnection, options: &OpenOptions) -> Result<TenantId, Refused> {
    conn.run_pending_migrations(MIGRATIONS)
        .map_err(|e| Refused::Open(OpenError::MigrationFailed(e.to_string())))?;
    let found: Option<String> = tenant::table.select(tenant::id).first(conn).optional()?;
    if let Some(id) = found {
        return Ok(id.into());
    }
    // Never a new Tenant on top of old data.
    for table in
        ["sessions", "principals", "definitions", "credentials", "signing_keys", "artifacts", "events"]
    {
        let sql = format!("SELECT count(*) AS n FROM (SELECT 1 FROM {table} LIMIT 1)");
        if diesel::sql_query(sql).get_result::<Count>(conn)?.n > 0 {
            let reason = format!("it has {table} but no Tenant");
            return Err(Refused::Open(OpenError::Corrupt { path: options.path.clone(), reason }));
        }
    }
    let now = options.clock.now();
    let fresh = || TenantId::from(format!("tn_{}", ulid(now.millis(), options.entropy.bits())));
    let id = options.tenant.id.clone().unwrap_or_else(fresh);
    diesel::insert_into(tenant::table)
        .values((
            tenant::singleton.eq(1),
            tenant::id.eq(id.as_str()),
            tenant::name.eq(&options.tenant.name),
            tenant::created_at.eq(now.0),
            tenant::updated_at.eq(now.0),
            tenant::generation.eq(0),
        ))
        .execute(conn)?;
    Ok(id)
}
