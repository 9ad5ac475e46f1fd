//! The store on SQLite: the port `nylorun_actors::ports::store` over diesel (DESIGN.md, section 5; spec: durability).
//!
//! One [`writer`] thread, a few [`reader`] threads, one process (the lock file beside the database sees to it).
//! [`access`] is one transaction, [`reads`] and [`writes`] are the port's methods over it, [`hot`] is what the writer
//! need not read again.

mod access;
mod actions;
mod artifacts;
mod error;
mod hot;
mod keys;
mod open;
mod prepared;
mod queue;
mod reader;
mod reads;
mod rows;
mod sandboxes;
mod schema;
mod tenant;
mod workspaces;
mod writer;
mod writes;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::{Builder, JoinHandle};

use diesel::prelude::*;
use nylorun_actors::model::ids::TenantId;
use nylorun_actors::ports::StoreError;
use nylorun_actors::ports::store::{
    CommitListener, Job, ReadJob, Store, StoreHandle, StoreHealth, StoreResult, Tx,
};

use access::Shared;
use error::store_error;
use queue::Queue;
use writer::{Outside, Writer};

pub(crate) use hot::KEPT as HOT_SESSIONS;

pub use error::OpenError;
pub use open::{Inspected, NewTenant, OpenOptions, inspect};

/// A store in a SQLite file.
pub struct SqliteStore {
    path: PathBuf,
    shared: Arc<Shared>,
    outside: Arc<Outside>,
    reads: Arc<Queue<Box<dyn ReadJob>>>,
    threads: Mutex<Threads>,
}

struct Threads {
    readers: Vec<JoinHandle<()>>,
    writer: Option<JoinHandle<()>>,
    lock: Option<open::Lock>,
}

impl SqliteStore {
    /// Opens the store, or makes a new one. It is this process's alone until it is closed or dropped.
    ///
    /// # Errors
    /// See [`OpenError`]; nothing was changed.
    pub fn open(options: OpenOptions) -> Result<Arc<Self>, OpenError> {
        let lock = open::lock(&options.path)?;
        let opened = open::open(&options)?;
        let shared = Arc::new(Shared {
            tenant: opened.tenant,
            schema_version: opened.schema_version,
            clock: options.clock,
            entropy: options.entropy,
            latest: AtomicI64::new(i64::MIN),
        });
        let outside = Arc::new(Outside {
            queue: Queue::new(),
            listeners: RwLock::default(),
            commits: AtomicBool::new(true),
            groups: AtomicU64::new(0),
        });
        let reads = Arc::new(Queue::new());
        let path = options.path;
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            Builder::new().name(name.to_owned()).spawn(work).map_err(|e| OpenError::of_io(&path, &e))
        };
        let connections: Vec<_> =
            (0..options.readers.max(1)).map(|_| open::connect_reader(&path)).collect::<Result<_, _>>()?;
        let mut threads = Threads { readers: Vec::new(), writer: None, lock: Some(lock) };
        let writer = Writer::new(opened.conn, shared.clone(), outside.clone());
        threads.writer = Some(spawn("store-writer", Box::new(move || writer.work()))?);
        for conn in connections {
            let (shared, queue) = (shared.clone(), reads.clone());
            let work = Box::new(move || reader::work(conn, &shared, &queue));
            threads.readers.push(spawn("store-reader", work)?);
        }
        let threads = Mutex::new(threads);
        Ok(Arc::new(Self { path, shared, outside, reads, threads }))
    }

    /// A handle on it.
    #[must_use]
    pub fn handle(self: &Arc<Self>) -> StoreHandle {
        StoreHandle::new(self.clone())
    }

    /// The Tenant whose store this is.
    #[must_use]
    pub fn tenant_id(&self) -> &TenantId {
        &self.shared.tenant
    }

    /// Writes a whole, compact copy of the store to `to` while it is in use. Blocks for as long as that takes.
    ///
    /// # Errors
    /// When `to` exists or cannot be written. Nothing is left at `to` then.
    pub fn backup(&self, to: &Path) -> StoreResult<()> {
        let refused = |e: std::io::Error| StoreError::Unavailable(format!("backup to {}: {e}", to.display()));
        if to.exists() {
            return Err(StoreError::Conflict(format!("{} exists", to.display())));
        }
        let mut partial = to.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        match std::fs::remove_file(&partial) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(refused(e)),
            _ => open::create_private(&partial).map_err(refused)?,
        }
        let copied = self.copy_to(&partial).and_then(|()| {
            std::fs::File::open(&partial).and_then(|file| file.sync_all()).map_err(refused)?;
            // Only now does it have the name that promises a whole copy; `hard_link` refuses to replace a file.
            std::fs::hard_link(&partial, to).map_err(refused)?;
            let folder = to.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            std::fs::File::open(folder).and_then(|dir| dir.sync_all()).map_err(refused)
        });
        let _ = std::fs::remove_file(&partial);
        copied
    }

    fn copy_to(&self, to: &Path) -> StoreResult<()> {
        let to = to.to_str().ok_or_else(|| StoreError::Unavailable("a path that is not UTF-8".to_owned()))?;
        let mut conn = open::connect(&self.path).map_err(|e| StoreError::Unavailable(e.to_string()))?;
        diesel::sql_query("VACUUM INTO ?")
            .bind::<diesel::sql_types::Text, _>(to)
            .execute(&mut conn)
            .map_err(store_error)?;
        Ok(())
    }
}

impl Store for SqliteStore {
    fn submit(&self, job: Box<dyn Job>) {
        if let Err(job) = self.outside.queue.push(job) {
            job.finish(Err(StoreError::Closed));
        }
    }

    fn submit_read(&self, job: Box<dyn ReadJob>) {
        if let Err(job) = self.reads.push(job) {
            job.run(Err(StoreError::Closed));
        }
    }

    fn on_commit(&self, listener: CommitListener) {
        self.outside.listeners.write().unwrap_or_else(PoisonError::into_inner).push(listener);
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn health(&self) -> StoreHealth {
        let commits = self.outside.commits.load(Ordering::Relaxed);
        let closed = self.outside.queue.is_closed();
        if !commits && !closed {
            // Says `false` until a commit has gone well, so one is tried even when nobody else writes.
            self.submit(Box::new(Probe));
        }
        StoreHealth {
            ok: commits && !closed,
            schema_version: self.shared.schema_version,
            expected_schema_version: self.shared.schema_version,
            commits: self.outside.groups.load(Ordering::Relaxed),
        }
    }

    fn close(&self) {
        self.outside.queue.close();
        self.reads.close();
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let Threads { readers, writer, lock } = &mut *threads;
        let me = std::thread::current().id();
        // Readers first: the writer's last act is a checkpoint that nobody's snapshot may hold up.
        for thread in readers.drain(..).chain(writer.take()) {
            // The last holder of the store may be one of its own threads, which ends by itself.
            if thread.thread().id() != me && thread.join().is_err() {
                tracing::error!("a thread of the store panicked");
            }
        }
        lock.take();
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.close();
    }
}

/// Writes something and takes it back, to see whether a commit goes well.
struct Probe;

const PROBE: &str = "store.probe";

impl Job for Probe {
    fn run(&mut self, tx: &mut dyn Tx) -> bool {
        tx.put_setting(PROBE, "").and_then(|()| tx.delete_setting(PROBE)).is_ok()
    }

    fn finish(self: Box<Self>, _: StoreResult<()>) {}
}
