//! What the tree needs from outside, as traits.

pub mod action;
pub mod blobs;
pub mod clock;
pub mod engine;
pub mod store;
pub mod workspaces;

pub use action::{ActionTransport, Answered, Delivery, NoTransport, Schemas};
pub use blobs::{Blob, BlobError, BlobStream, BlobWriter, Blobs};
pub use clock::{Clock, Entropy};
pub use engine::{AbortSignal, ApiError, Engine, RunLink};
pub use store::{Store, StoreError, StoreHandle, Tx};
pub use workspaces::{Claims, WorkspaceError, WorkspaceManager, WorkspaceOf, Workspaces};
