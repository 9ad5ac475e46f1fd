//! Which connected harness has which workspace (DESIGN.md, section 9: workspaces are routed by record).
//!
//! A workspace's files are on one harness's disk. Where that is, is learned from claims and sweeps and kept in memory
//! only; that a workspace exists at all is on record in the store. A recorded workspace that no connected harness is
//! known to have is looked for by asking them all; while the one that has it is away its calls are refused for a
//! moment, since another harness would open an empty workspace under the same name.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::limits::{WORKSPACE_AWAIT_MS, WORKSPACE_PLACES};

/// Where one workspace is.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// At this harness.
    At(u64),
    /// At a harness that went away then, or was not there. `ask`: another one has come since.
    Away { since: Instant, ask: bool },
}

/// What to do for a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It is there, or goes there.
    At(u64),
    /// Whoever serves workspaces must be asked.
    Ask,
    /// The one that has it is awaited.
    Away,
    /// Nobody serves workspaces.
    Nobody,
}

/// All that is known.
#[derive(Debug, Default)]
pub struct Places(HashMap<String, Place>);

impl Places {
    /// A harness has these.
    pub fn learn(&mut self, harness: u64, keys: impl IntoIterator<Item = String>) {
        for key in keys {
            if self.0.len() >= WORKSPACE_PLACES && !self.0.contains_key(&key) {
                // Each is looked for again when it is needed.
                self.0.clear();
            }
            self.0.insert(key, Place::At(harness));
        }
    }

    /// A harness is gone, or serves workspaces no more.
    pub fn gone(&mut self, harness: u64) {
        let now = Instant::now();
        for place in self.0.values_mut() {
            if matches!(place, Place::At(at) if *at == harness) {
                *place = Place::Away { since: now, ask: false };
            }
        }
    }

    /// A harness that serves workspaces has come: it may be one that was away.
    pub fn came(&mut self) {
        for place in self.0.values_mut() {
            if let Place::Away { ask, .. } = place {
                *ask = true;
            }
        }
    }

    /// Where a workspace is known to be.
    #[must_use]
    pub fn at(&self, key: &str) -> Option<u64> {
        match self.0.get(key) {
            Some(Place::At(harness)) => Some(*harness),
            _ => None,
        }
    }

    /// Finds a workspace among `serving`, the harnesses that serve workspaces, oldest first. `recorded`: it exists.
    /// `asked`: all have just been asked. `preferred`: where a new one is best.
    pub fn find(
        &mut self,
        key: &str,
        recorded: bool,
        asked: bool,
        serving: &[u64],
        preferred: Option<u64>,
    ) -> Found {
        let Some(first) = serving.first().copied() else { return Found::Nobody };
        match self.0.get(key).copied() {
            Some(Place::At(at)) if serving.contains(&at) => return Found::At(at),
            Some(Place::Away { since, ask }) => {
                if since.elapsed() < Duration::from_millis(WORKSPACE_AWAIT_MS) {
                    if ask && !asked {
                        return Found::Ask;
                    }
                    self.0.insert(key.to_owned(), Place::Away { since, ask: false });
                    return Found::Away;
                }
            }
            // It served workspaces and does not any more.
            Some(Place::At(_)) | None if recorded => {
                if !asked {
                    return Found::Ask;
                }
                self.0.insert(key.to_owned(), Place::Away { since: Instant::now(), ask: false });
                return Found::Away;
            }
            Some(Place::At(_)) | None => {}
        }
        let at = preferred.filter(|id| serving.contains(id)).unwrap_or(first);
        self.learn(at, [key.to_owned()]);
        Found::At(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_new_workspace_goes_where_its_session_ran_else_to_the_first_and_stays_there() {
        let mut places = Places::default();
        assert_eq!(places.find("a", false, false, &[], None), Found::Nobody);
        assert_eq!(places.find("a", false, false, &[1, 2], Some(2)), Found::At(2));
        assert_eq!(places.find("a", false, false, &[1, 2], None), Found::At(2));
        assert_eq!(places.find("b", false, false, &[1, 2], Some(9)), Found::At(1));
        assert_eq!(places.at("b"), Some(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_recorded_workspace_is_looked_for_then_awaited_then_given_up() {
        let mut places = Places::default();
        assert_eq!(places.find("a", true, false, &[1], None), Found::Ask);
        assert_eq!(places.find("a", true, true, &[1], None), Found::Away);
        tokio::time::advance(Duration::from_millis(WORKSPACE_AWAIT_MS - 1)).await;
        assert_eq!(places.find("a", true, false, &[1], None), Found::Away, "nobody new has come");
        places.came();
        assert_eq!(places.find("a", true, false, &[1, 2], None), Found::Ask);
        assert_eq!(places.find("a", true, true, &[1, 2], None), Found::Away);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(places.find("a", true, false, &[1, 2], None), Found::At(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_harness_that_comes_back_is_found_again() {
        let mut places = Places::default();
        places.learn(1, ["a".to_owned()]);
        assert_eq!(places.find("a", true, false, &[1, 2], Some(2)), Found::At(1));
        places.gone(1);
        assert_eq!(places.find("a", true, false, &[2], None), Found::Away);
        places.came();
        assert_eq!(places.find("a", true, false, &[2, 3], None), Found::Ask);
        places.learn(3, ["a".to_owned()]);
        assert_eq!(places.find("a", true, true, &[2, 3], None), Found::At(3));
        assert_eq!(places.find("a", true, false, &[2], None), Found::Ask, "3 serves workspaces no more");
    }
}
