//! `bench appends`: one event a transaction, straight into a temporary SQLite store with full durability. What is
//! measured is the writer: group commit, the record, and the disk.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use nylorun_actors::ports::store::{StoreError, StoreHandle, StoreResult};
use nylorun_actors::ports::{SystemClock, SystemEntropy};
use serde_json::json;

use super::server::Scratch;
use super::{Latencies, round};
use crate::cli::args::BenchAppends;
use crate::cli::fault::{Fault, exit};
use crate::cli::out::Out;
use crate::store::{OpenOptions, SqliteStore};
