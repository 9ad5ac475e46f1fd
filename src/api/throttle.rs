//! Slows peers that keep sending credentials that nobody knows (spec: security, section 17, item 7).
//!
//! The answer stays the same opaque 404; only its time changes. A valid credential is never slowed, whoever shares
//! its address, because only refusals come here.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::limits::{FREE_REFUSALS, REFUSAL_DELAY, REFUSALS_PER_SECOND, REFUSED_PEERS};

/// How many refusals a peer has left, at an instant.
#[derive(Clone, Copy)]
struct Bucket {
    left: f64,
    at: Instant,
}

#[derive(Default)]
pub(super) struct Throttle {
    peers: Mutex<HashMap<IpAddr, Bucket>>,
}

impl Throttle {
    /// Counts a refusal and says how long it is to be held back.
    pub fn refused(&self, peer: IpAddr, now: Instant) -> Duration {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if peers.len() >= REFUSED_PEERS && !peers.contains_key(&peer) {
            forget_older_half(&mut peers);
        }
        let bucket = peers.entry(peer).or_insert(Bucket { left: FREE_REFUSALS, at: now });
        let waited = now.saturating_duration_since(bucket.at).as_secs_f64();
        bucket.left = (bucket.left + waited * REFUSALS_PER_SECOND).min(FREE_REFUSALS);
        bucket.at = now;
        if bucket.left >= 1.0 {
            bucket.left -= 1.0;
            return Duration::ZERO;
        }
        // Below zero the debt itself is the delay, so a burst is spread to the allowed rate.
        bucket.left = (bucket.left - 1.0).max(-REFUSALS_PER_SECOND * REFUSAL_DELAY.as_secs_f64());
        Duration::from_secs_f64((-bucket.left / REFUSALS_PER_SECOND).max(0.0)).min(REFUSAL_DELAY)
    }
}

fn forget_older_half(peers: &mut HashMap<IpAddr, Bucket>) {
    let mut times: Vec<Instant> = peers.values().map(|bucket| bucket.at).collect();
    let middle = times.len() / 2;
    let (_, median, _) = times.select_nth_unstable(middle);
    let median = *median;
    peers.retain(|_, bucket| bucket.at > median);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn peer(n: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from(n))
    }

    #[test]
    fn a_peer_is_slowed_after_its_free_refusals_and_forgiven_with_time() {
        let (throttle, start) = (Throttle::default(), Instant::now());
        for _ in 0..100 {
            assert_eq!(throttle.refused(peer(1), start), Duration::ZERO);
        }
        let slowed: Vec<Duration> = (0..30).map(|_| throttle.refused(peer(1), start)).collect();
        assert!(slowed.windows(2).all(|w| w[0] <= w[1]) && slowed[0] > Duration::ZERO, "{slowed:?}");
        assert_eq!(slowed[29], REFUSAL_DELAY);
        assert_eq!(throttle.refused(peer(2), start), Duration::ZERO, "another peer is not slowed");
        assert_eq!(throttle.refused(peer(1), start + Duration::from_secs(60)), Duration::ZERO);
    }

    #[test]
    fn no_more_than_the_bound_of_peers_is_remembered() {
        let (throttle, start) = (Throttle::default(), Instant::now());
        for n in 0..20_000 {
            throttle.refused(peer(n), start + Duration::from_micros(u64::from(n)));
        }
        assert!(throttle.peers.lock().unwrap().len() <= REFUSED_PEERS);
    }
}
