//! The SQLite store keeps the store contract.

// Helpers of tests may panic like tests.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use nylorun::store::{OpenOptions, SqliteStore};
use nylorun_actors::ports::store::StoreHandle;
use nylorun_actors::testing::contract::Subject;
use nylorun_actors::testing::{ManualClock, SeededEntropy};

struct Sqlite {
    clock: Arc<ManualClock>,
    entropy: Arc<SeededEntropy>,
    handle: StoreHandle,
    // Last, so that the store is closed before its folder goes.
    folder: tempfile::TempDir,
}

impl Sqlite {
    fn new() -> Self {
        let (clock, entropy) = (Arc::new(ManualClock::default()), Arc::new(SeededEntropy::new(1)));
        let folder = tempfile::tempdir().unwrap();
        let handle = open(&folder, &clock, &entropy);
        Self { clock, entropy, handle, folder }
    }
}

fn open(folder: &tempfile::TempDir, clock: &Arc<ManualClock>, entropy: &Arc<SeededEntropy>) -> StoreHandle {
    let options = OpenOptions::new(folder.path().join("nylorun.db"), clock.clone(), entropy.clone());
    SqliteStore::open(options).unwrap().handle()
}

impl Subject for Sqlite {
    fn handle(&self) -> StoreHandle {
        self.handle.clone()
    }

    fn clock(&self) -> Arc<ManualClock> {
        self.clock.clone()
    }

    fn reopen(&mut self) {
        self.handle.store().close();
        self.handle = open(&self.folder, &self.clock, &self.entropy);
    }
}

nylorun_actors::store_contract!(Sqlite::new());
