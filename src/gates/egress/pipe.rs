//! Bytes both ways between two connections, until both have ended, one breaks, or nothing has moved for a while.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};

/// Bytes that each direction holds.
const BUFFER: usize = 16 * 1024;

/// When something moved last.
struct Moved {
    from: Instant,
    millis: AtomicU64,
}

impl Moved {
    fn now(&self) {
        let millis = u64::try_from(self.from.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.millis.store(millis, Ordering::Relaxed);
    }

    fn last(&self) -> Instant {
        self.from + Duration::from_millis(self.millis.load(Ordering::Relaxed))
    }
}

/// Copies both ways. The end of one direction is passed on; the other goes on.
pub async fn both(a: TcpStream, b: TcpStream, idle: Duration) {
    let moved = Moved { from: Instant::now(), millis: AtomicU64::new(0) };
    let ((from_a, to_a), (from_b, to_b)) = (a.into_split(), b.into_split());
    let copying = async { tokio::try_join!(copy(from_a, to_b, &moved), copy(from_b, to_a, &moved)) };
    let quiet = async {
        while moved.last() + idle > Instant::now() {
            sleep_until(moved.last() + idle).await;
        }
    };
    tokio::select! {
        // A connection that breaks ends the other one, too.
        _ = copying => {}
        () = quiet => {}
    }
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    moved: &Moved,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let size = from.read(&mut buffer).await?;
        moved.now();
        if size == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..size]).await?;
        moved.now();
    }
}
