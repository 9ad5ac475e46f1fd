//! Every bound of the listener (`docs/limits.md` is made from these and others). The size of a frame and the silence of
//! a peer are bounds of the tree: `nylorun_actors::limits`.

use std::time::Duration;

use nylorun_actors::limits::Limit;

/// Connections at once, unless the setting says otherwise.
pub const CONNECTIONS: usize = 6_000;
/// Upgrades with a valid token that wait for their actor.
pub const HANDSHAKES: usize = 256;
/// Sockets beside those of harnesses: requests that are being read or refused.
pub const STRANGERS: usize = 1_024;
/// Threads that serve sockets, where the machine has as many cores.
pub const WORKERS: usize = 4;
/// Time of a peer to send its upgrade's head.
pub const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// Frames that wait for one peer: more than its requests and leases in flight can come to.
pub const QUEUE_FRAMES: usize = 4_096;
/// Frames that wait for one peer from which on it is not read: its requests come faster than it takes their answers.
pub const CROWDED: usize = 256;
/// Bytes that wait for one peer.
pub const QUEUE_BYTES: usize = 128 * 1024 * 1024;
/// Bytes of a frame that are handed to the socket at once.
pub const PIECE: usize = 32 * 1024;
/// A message from which on the socket waits until it was taken before it reads the next one.
pub const LARGE: usize = 64 * 1024;
/// Time of a peer to answer a close.
pub const CLOSE_WITHIN: Duration = Duration::from_secs(5);
/// The same while core stops.
pub const STOP_WITHIN: Duration = Duration::from_secs(1);
/// Pause between two looks for sockets that do not close.
pub const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Bytes of a close frame's reason.
pub const REASON: usize = 120;

/// The same, for people.
pub const LIMITS: &[Limit] = &[
    Limit {
        what: "connected harnesses",
        value: "6000",
        owner: "harness_api/registry",
        at_it: "503 to a further one that has a valid token",
        setting: "`harness-connections`",
    },
    Limit {
        what: "upgrades with a valid token in progress",
        value: "256",
        owner: "harness_api/upgrade",
        at_it: "503",
        setting: "fixed",
    },
    Limit {
        what: "sockets beside those of harnesses",
        value: "1024",
        owner: "harness_api",
        at_it: "the next one waits in the system's queue",
        setting: "fixed",
    },
    Limit {
        what: "head of an upgrade request",
        value: "10 s",
        owner: "harness_api",
        at_it: "408, and the socket is closed",
        setting: "fixed",
    },
    Limit {
        what: "frames that wait for one harness",
        value: "4096 frames and 128 MiB",
        owner: "harness_api/link",
        at_it: "the socket is not read from 256 on; then the connection is dropped and its runs are taken over at once",
        setting: "fixed",
    },
    Limit {
        what: "messages of a harness that wait for its actor",
        value: "one of 64 KiB or more, or the actor's mailbox of smaller ones",
        owner: "harness_api/socket",
        at_it: "the socket is not read meanwhile",
        setting: "fixed",
    },
    Limit {
        what: "answer to a close",
        value: "5 s, 1 s when core stops",
        owner: "harness_api/registry",
        at_it: "the socket is ended",
        setting: "fixed",
    },
    Limit {
        what: "reason of a close",
        value: "120 bytes",
        owner: "harness_api/link",
        at_it: "the rest is cut",
        setting: "fixed",
    },
];
