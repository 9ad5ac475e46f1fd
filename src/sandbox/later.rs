//! Work that nobody waits for: what a command has used goes, what the next will use is made.

use std::time::Duration;

use tokio::runtime::Handle;

/// How long it waits: the answer of the command that has just ended is on its way, and a small machine has nothing to spare
/// until it has arrived.
const MOMENT: Duration = Duration::from_millis(1);

/// Does it a moment later, on a thread that may wait for the system. Without a runtime this process ends, and the next one
/// does what is left to do.
pub fn later(work: impl FnOnce() + Send + 'static) {
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(async move {
            tokio::time::sleep(MOMENT).await;
            // A task that panics has said so.
            let _ = tokio::task::spawn_blocking(work).await;
        });
    }
}
