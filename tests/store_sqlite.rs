//! What the SQLite store does beyond the contract: who may open it, what it refuses, full disks, backups.

// Helpers of tests may panic like tests.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use diesel::connection::SimpleConnection as _;
use diesel::prelude::*;
use nylorun::store::{NewTenant, OpenError, OpenOptions, SqliteStore};
use nylorun_actors::model::event::EventKind;
use nylorun_actors::model::session::{SessionDoc, SessionHead, SessionPin, SessionStatus};
use nylorun_actors::ports::clock::{SystemClock, SystemEntropy};
use nylorun_actors::ports::store::{Job, Store, StoreError, StoreHandle, StoreResult, Tx};

fn options(path: &Path) -> OpenOptions {
    OpenOptions::new(path, Arc::new(SystemClock), Arc::new(SystemEntropy))
}

fn open(path: &Path) -> Result<Arc<SqliteStore>, OpenError> {
    SqliteStore::open(options(path))
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nylorun.db");
    (folder, path)
}

fn refusal(path: &Path) -> OpenError {
    match open(path) {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => error,
    }
}

fn head(id: &str) -> SessionHead {
    SessionHead {
        id: id.into(),
        agent_id: "a".into(),
        owner_user_id: "u".to_owned(),
        sandbox_id: None,
        manifest_hash: "h".to_owned(),
        status: SessionStatus::Idle,
        active_turn_id: None,
        last_turn_id: None,
        owner: None,
        epoch: 0,
        owner_expires_at: None,
    }
}

async fn insert(store: &StoreHandle, id: &'static str) -> StoreResult<()> {
    store.tx(move |t| t.insert_session(&head(id), &SessionPin::default(), &SessionDoc::default())).await
}

async fn append(store: &StoreHandle, text: &str) -> StoreResult<i64> {
    let payload = format!("{{\"text\":\"{text}\"}}");
    store.tx(move |t| t.event(&"s".into(), None, EventKind::ToolCompleted, &payload)).await
}

async fn put(store: &StoreHandle, key: &'static str) -> StoreResult<()> {
    store.tx(move |t| t.put_setting(key, "1")).await
}

async fn get(store: &StoreHandle, key: &'static str) -> StoreResult<Option<String>> {
    store.read(move |r| r.setting(key)).await
}

/// Changes the database behind the store's back, while it is closed.
fn tamper(path: &Path, sql: &str) {
    SqliteConnection::establish(path.to_str().unwrap()).unwrap().batch_execute(sql).unwrap();
}

#[test]
fn a_second_open_is_refused_and_names_the_process_that_holds_it() {
    let (_folder, path) = folder();
    let first = open(&path).unwrap();
    let error = refusal(&path);
    assert!(matches!(error, OpenError::InUse { pid: Some(pid), .. } if pid == std::process::id()), "{error}");
    assert!(error.to_string().contains(&std::process::id().to_string()));
    first.close();
    let second = open(&path).unwrap();
    // Dropping it is enough.
    drop(second);
    open(&path).unwrap();
}

#[tokio::test]
async fn nobody_else_may_read_the_files() {
    use std::os::unix::fs::PermissionsExt as _;
    let (folder, path) = folder();
    let store = open(&path).unwrap();
    put(&store.handle(), "k").await.unwrap();
    store.backup(&folder.path().join("copy.db")).unwrap();
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{entry:?}");
        names.push(entry.file_name());
    }
    assert_eq!(names.len(), 5, "database, log, its index, lock and copy: {names:?}");
}

#[test]
fn the_lock_file_of_a_dead_process_holds_nobody_up() {
    let (folder, path) = folder();
    std::fs::write(folder.path().join("nylorun.db.lock"), "1\n").unwrap();
    open(&path).unwrap();
}

#[test]
fn a_failed_open_lets_go_of_the_lock() {
    let (_folder, path) = folder();
    std::fs::write(&path, "this is no database, whatever its name says").unwrap();
    assert!(matches!(refusal(&path), OpenError::NotADatabase { .. }));
    std::fs::remove_file(&path).unwrap();
    open(&path).unwrap();
}

#[tokio::test]
async fn a_new_store_gets_its_tenant_and_keeps_it() {
    let (_folder, path) = folder();
    let tenant = NewTenant { id: Some("tn_mine".into()), name: "Mine".to_owned() };
    let store = SqliteStore::open(OpenOptions { tenant, ..options(&path) }).unwrap();
    assert_eq!(store.tenant_id().as_str(), "tn_mine");
    drop(store);
    let other = NewTenant { id: Some("tn_other".into()), name: "Other".to_owned() };
    let store = SqliteStore::open(OpenOptions { tenant: other, ..options(&path) }).unwrap();
    let row: StoreResult<_> = store.handle().read(|r| r.tenant()).await;
    let row = row.unwrap();
    assert_eq!((row.id.as_str(), row.name.as_str()), ("tn_mine", "Mine"));
}

#[test]
fn a_schema_that_is_too_new_is_refused_and_left_alone() {
    let (_folder, path) = folder();
    drop(open(&path).unwrap());
    tamper(&path, "INSERT INTO __diesel_schema_migrations (version) VALUES ('29991231000000')");
    let before = std::fs::read(&path).unwrap();
    let error = refusal(&path);
    assert!(matches!(&error, OpenError::SchemaTooNew { found, .. } if found == "29991231000000"), "{error}");
    assert!(error.to_string().contains("29991231000000"));
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn a_migration_that_fails_is_undone() {
    let (_folder, path) = folder();
    drop(open(&path).unwrap());
    tamper(&path, "DELETE FROM __diesel_schema_migrations");
    // The only one there is fails on the tables it finds, and nothing is left of the try.
    let error = refusal(&path);
    assert!(matches!(error, OpenError::MigrationFailed(_)), "{error}");
    let mut conn = SqliteConnection::establish(path.to_str().unwrap()).unwrap();
    let applied = diesel::sql_query("SELECT 1 FROM __diesel_schema_migrations").execute(&mut conn);
    assert_eq!(applied, Ok(0));
}

#[test]
fn a_database_of_another_program_is_refused_and_left_alone() {
    let (_folder, path) = folder();
    tamper(&path, "CREATE TABLE songs (title TEXT)");
    let before = std::fs::read(&path).unwrap();
    assert!(matches!(refusal(&path), OpenError::Corrupt { .. }));
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn no_new_tenant_is_made_on_top_of_old_data() {
    let (_folder, path) = folder();
    let store = open(&path).unwrap();
    insert(&store.handle(), "s").await.unwrap();
    drop(store);
    tamper(&path, "DELETE FROM tenant");
    let error = refusal(&path);
    assert!(matches!(&error, OpenError::Corrupt { reason, .. } if reason.contains("sessions")), "{error}");
    tamper(&path, "DELETE FROM sessions; DELETE FROM logs;");
    open(&path).unwrap();
}

#[tokio::test]
async fn a_damaged_schema_is_refused() {
    let (_folder, path) = folder();
    drop(open(&path).unwrap());
    let mut bytes = std::fs::read(&path).unwrap();
    // The first page after its header: the root of the schema.
    bytes[100..4000].fill(0xFF);
    std::fs::write(&path, bytes).unwrap();
    assert!(matches!(refusal(&path), OpenError::Corrupt { .. }));
}

#[tokio::test]
async fn damaged_data_is_reported_and_nothing_is_written_over_it() {
    let (_folder, path) = folder();
    let store = open(&path).unwrap();
    insert(&store.handle(), "s").await.unwrap();
    for i in 0..200 {
        append(&store.handle(), &format!("marker-{i}-{}", "x".repeat(400))).await.unwrap();
    }
    drop(store);
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(10).position(|w| w == b"marker-100").unwrap();
    let page = at / 4096 * 4096;
    bytes[page..page + 4096].fill(0xFF);
    std::fs::write(&path, bytes).unwrap();

    let store = open(&path).unwrap().handle();
    let record: StoreResult<_> = store.read(|r| r.record(&"s".into(), 0, 500)).await;
    assert!(matches!(record, Err(StoreError::Corrupt(_))), "{record:?}");
    // A closure that does not care about the error writes nothing all the same.
    let answer: StoreResult<()> = store
        .tx(|t| {
            t.put_setting("before", "1")?;
            let _ = t.record(&"s".into(), 0, 500);
            let _ = t.put_setting("after", "1");
            Ok(())
        })
        .await;
    assert!(matches!(answer, Err(StoreError::Corrupt(_))), "{answer:?}");
    assert_eq!((get(&store, "before").await, get(&store, "after").await), (Ok(None), Ok(None)));
    assert_eq!(put(&store, "other").await, Ok(()));
}

#[test]
fn a_folder_that_is_missing_or_a_file_is_an_error_of_the_system() {
    let (folder, _) = folder();
    assert!(matches!(refusal(&folder.path().join("no/nylorun.db")), OpenError::Io { .. }));
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(matches!(refusal(&file.join("nylorun.db")), OpenError::Io { .. }));
    assert!(matches!(refusal(folder.path()), OpenError::Io { .. }));
}

/// A small disk of its own, for tests that need one; only root can make it.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(size: &str) -> Option<Self> {
        let disk = Self(tempfile::tempdir().unwrap());
        let options = format!("size={size}");
        disk.run("mount", &["-t", "tmpfs", "-o", &options, "none"]).then_some(disk).or_else(|| {
            eprintln!("SKIPPED: a disk of its own cannot be mounted here (needs root)");
            None
        })
    }

    fn run(&self, command: &str, args: &[&str]) -> bool {
        Command::new(command).args(args).arg(self.0.path()).output().is_ok_and(|out| out.status.success())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("nylorun.db")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        self.run("umount", &["-l"]);
    }
}

#[test]
fn a_read_only_disk_is_refused_as_such() {
    let Some(disk) = SmallDisk::mount("4m") else { return };
    drop(open(&disk.path()).unwrap());
    assert!(disk.run("mount", &["-o", "remount,ro"]));
    assert!(matches!(refusal(&disk.path()), OpenError::ReadOnly { .. }));
    assert!(disk.run("mount", &["-o", "remount,rw"]));
    open(&disk.path()).unwrap();
}

#[tokio::test]
async fn a_full_disk_fails_commits_until_there_is_room() {
    let Some(disk) = SmallDisk::mount("6m") else { return };
    let ballast = disk.0.path().join("ballast");
    std::fs::write(&ballast, vec![1; 2 << 20]).unwrap();
    let store = open(&disk.path()).unwrap();
    let handle = store.handle();
    let heard = Arc::new(AtomicUsize::new(0));
    let count = heard.clone();
    store.on_commit(Arc::new(move |events| {
        count.fetch_add(events.len(), Ordering::SeqCst);
    }));
    insert(&handle, "s").await.unwrap();
    let large = "x".repeat(50_000);
    let mut kept = 0;
    let error = loop {
        match append(&handle, &large).await {
            Ok(seq) => assert_eq!(seq, kept),
            Err(error) => break error,
        }
        kept += 1;
        assert!(kept < 1_000, "the disk never filled up");
    };
    assert_eq!(error, StoreError::Full);
    assert!(!store.health().ok);
    assert_eq!(heard.load(Ordering::SeqCst) as i64, kept, "nobody hears of what is not there");
    // Everybody in the group is told, and a large one does not take the small ones before it along silently.
    let (small, failed) = tokio::join!(put(&handle, "small"), append(&handle, &large));
    assert_eq!(failed, Err(StoreError::Full));
    assert_eq!(get(&handle, "small").await.unwrap().is_some(), small.is_ok());
    let read: StoreResult<i64> = handle.read(|r| r.head(&"s".into())).await;
    assert_eq!(read, Ok(kept));

    std::fs::remove_file(&ballast).unwrap();
    assert_eq!(append(&handle, &large).await, Ok(kept));
    assert!(store.health().ok);
    drop((handle, store));
    let store = open(&disk.path()).unwrap();
    let rows: StoreResult<_> = store.handle().read(|r| r.record(&"s".into(), 0, 10_000)).await;
    let seqs: Vec<i64> = rows.unwrap().iter().map(|row| row.seq).collect();
    assert_eq!(seqs, (0..=kept).collect::<Vec<_>>());
}

#[tokio::test]
async fn health_recovers_by_itself_when_there_is_room_again() {
    let Some(disk) = SmallDisk::mount("4m") else { return };
    let ballast = disk.0.path().join("ballast");
    std::fs::write(&ballast, vec![1; 2 << 20]).unwrap();
    let store = open(&disk.path()).unwrap();
    insert(&store.handle(), "s").await.unwrap();
    while append(&store.handle(), &"x".repeat(50_000)).await.is_ok() {}
    assert!(!store.health().ok);
    std::fs::remove_file(&ballast).unwrap();
    // Nobody writes; the check itself finds out. It asks behind the answer it gives, so it takes a second look.
    let mut tries = 0;
    while !store.health().ok {
        tries += 1;
        assert!(tries < 500, "health never recovered");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_read_sees_one_moment_and_holds_no_writer_up() {
    let (_folder, path) = folder();
    let store = open(&path).unwrap().handle();
    let (reading, is_reading) = mpsc::channel();
    let (written, is_written) = mpsc::channel::<()>();
    let reader = tokio::spawn({
        let store = store.clone();
        async move {
            store
                .read(move |r| {
                    let before = r.setting("k")?;
                    reading.send(()).unwrap();
                    is_written.recv_timeout(Duration::from_secs(20)).unwrap();
                    Ok::<_, StoreError>((before, r.setting("k")?))
                })
                .await
        }
    });
    tokio::task::spawn_blocking(move || is_reading.recv().unwrap()).await.unwrap();
    put(&store, "k").await.unwrap();
    written.send(()).unwrap();
    assert_eq!(reader.await.unwrap(), Ok((None, None)));
    assert_eq!(get(&store, "k").await, Ok(Some("1".to_owned())));
}

#[tokio::test]
async fn what_is_not_committed_is_not_read() {
    let (_folder, path) = folder();
    let store = open(&path).unwrap().handle();
    let (wrote, has_written) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let writer = tokio::spawn({
        let store = store.clone();
        async move {
            store
                .tx(move |t| {
                    t.put_setting("k", "1")?;
                    wrote.send(()).unwrap();
                    may_go_on.recv_timeout(Duration::from_secs(20)).unwrap();
                    Ok::<_, StoreError>(())
                })
                .await
        }
    });
    tokio::task::spawn_blocking(move || has_written.recv().unwrap()).await.unwrap();
    assert_eq!(get(&store, "k").await, Ok(None));
    go_on.send(()).unwrap();
    writer.await.unwrap().unwrap();
    assert_eq!(get(&store, "k").await, Ok(Some("1".to_owned())));
}

struct Count(Arc<AtomicUsize>);

impl Job for Count {
    fn run(&mut self, tx: &mut dyn Tx) -> bool {
        let n: u32 = tx.setting("n").ok().flatten().and_then(|n| n.parse().ok()).unwrap_or(0);
        tx.put_setting("n", &(n + 1).to_string()).is_ok()
    }

    fn finish(self: Box<Self>, result: StoreResult<()>) {
        assert_eq!(result, Ok(()));
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn closing_finishes_what_is_queued_and_leaves_one_file() {
    let (folder, path) = folder();
    let store = open(&path).unwrap();
    let answered = Arc::new(AtomicUsize::new(0));
    for _ in 0..1_000 {
        store.submit(Box::new(Count(answered.clone())));
    }
    store.close();
    assert_eq!(answered.load(Ordering::SeqCst), 1_000);
    let mut left: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["nylorun.db", "nylorun.db.lock"]);
    assert_eq!(get(&open(&path).unwrap().handle(), "n").await, Ok(Some("1000".to_owned())));
}

#[tokio::test]
async fn a_backup_is_a_whole_store_and_replaces_nothing() {
    let (folder, path) = folder();
    let store = open(&path).unwrap();
    let handle = store.handle();
    insert(&handle, "s").await.unwrap();
    for i in 0..50 {
        append(&handle, &i.to_string()).await.unwrap();
    }
    let to = folder.path().join("it's a copy.db");
    store.backup(&to).unwrap();
    append(&handle, "later").await.unwrap();
    assert!(matches!(store.backup(&to), Err(StoreError::Conflict(_))));
    assert!(store.backup(&folder.path().join("no/copy.db")).is_err());
    assert!(!folder.path().join("it's a copy.db.partial").exists());

    let copy = open(&to).unwrap();
    assert_eq!(copy.tenant_id(), store.tenant_id());
    let head: StoreResult<_> = copy.handle().read(|r| r.head(&"s".into())).await;
    assert_eq!(head, Ok(50));
    assert_eq!(append(&copy.handle(), "goes on").await, Ok(50));
}
