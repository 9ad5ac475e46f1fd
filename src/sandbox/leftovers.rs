//! What is left when the Runtime is killed: control groups, and folders that were for the next workspaces or for a probe. The
//! stem outlives it for a moment and removes them, so that nothing is left even if no Runtime is ever started again there.
//! If the stem is killed as well, the next start of the Runtime does it.

use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getppid};

use super::cgroups;
use super::folders;
use super::job::Ground;
use super::local::PROBES;

/// How long is waited for the end of the Runtime, whose sockets close before it has ended.
const END_WAIT: Duration = Duration::from_secs(2);
/// How long is waited for the end of all that it had running.
const WORK_WAIT: Duration = Duration::from_secs(10);
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// Removes it once the Runtime, which was the parent of this process, is gone. A Runtime that lives does so itself.
pub fn remove(ground: &Ground, runtime: Pid) {
    if !within(END_WAIT, || getppid() != runtime) {
        return;
    }
    let childless = || loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => return false,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return true,
        }
    };
    // What does not end is ended with its group.
    let _ = within(WORK_WAIT, childless);
    cgroups::tidy(&ground.groups);
    cgroups::leave(&ground.groups);
    for prefix in [folders::READY, PROBES] {
        folders::sweep(&ground.root, prefix);
    }
}

fn within(time: Duration, done: impl Fn() -> bool) -> bool {
    let until = Instant::now() + time;
    while !done() {
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(LOOK);
    }
    true
}
