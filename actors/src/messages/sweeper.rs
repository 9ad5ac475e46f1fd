//! What the [`Sweeper`](crate::sweeper::Sweeper) is told.

use actix::Message;

/// Make a pass now. The next one follows an interval after it has ended.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Sweep;
