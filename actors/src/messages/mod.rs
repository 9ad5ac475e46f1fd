//! The typed messages, one file for each receiver. There is no catch-all and none typed by a string.

pub mod endpoint;
pub mod harness;
pub mod session;
pub mod supervisor;
pub mod sweeper;
pub mod workspaces;

use actix::Message;

use crate::model::Json;

/// Asks an actor for its observable state: a small object that tests, `nylorun status` and the operator's page read.
#[derive(Debug, Message)]
#[rtype(result = "Json")]
pub struct Observe;

/// Makes an actor panic in the middle of its work, so that tests see what its supervisor does.
#[cfg(any(test, feature = "testing"))]
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Panic;
