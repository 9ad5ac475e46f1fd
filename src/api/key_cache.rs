//! Which keys are known: the store's answers, kept until any key changes (spec: security, sections 1.2 and 17, item 7).
//!
//! A rotated or deleted key must stop working on its very next request. So the cache is only used while this process
//! alone writes the store, and whoever changes a principal calls [`KeyCache::invalidate`] before it answers. A lookup
//! that began before a change can not be kept after it: it carries the generation in which it began.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use super::limits::CACHED_KEYS;

/// SHA-256 of a bearer.
pub(super) type Digest = [u8; 32];

/// What is known about a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// It belongs to this principal.
    Principal(Arc<str>),
    /// It belongs to nobody.
    Nobody,
    /// The store must be asked; its answer is given back with this generation.
    Ask(u64),
}

#[derive(Default)]
struct Entries {
    generation: u64,
    known: HashMap<Digest, Arc<str>>,
    unknown: HashMap<Digest, ()>,
}

pub(super) struct KeyCache {
    enabled: bool,
    entries: RwLock<Entries>,
}

impl KeyCache {
    /// `enabled`: whether this process alone writes the store.
    pub fn new(enabled: bool) -> Self {
        Self { enabled, entries: RwLock::default() }
    }

    pub fn get(&self, key: &Digest) -> Known {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(principal) = entries.known.get(key) {
            return Known::Principal(Arc::clone(principal));
        }
        if entries.unknown.contains_key(key) { Known::Nobody } else { Known::Ask(entries.generation) }
    }

    /// Keeps the store's answer to a lookup that began in `generation`.
    pub fn keep(&self, generation: u64, key: Digest, principal: Option<&Arc<str>>) {
        if !self.enabled {
            return;
        }
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        if entries.generation != generation {
            return;
        }
        match principal {
            Some(principal) => {
                make_room(&mut entries.known);
                entries.known.insert(key, Arc::clone(principal));
            }
            None => {
                make_room(&mut entries.unknown);
                entries.unknown.insert(key, ());
            }
        }
    }

    /// Forgets everything, and what is being looked up now.
    pub fn invalidate(&self) {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        entries.generation += 1;
        entries.known.clear();
        entries.unknown.clear();
    }
}

fn make_room<T>(map: &mut HashMap<Digest, T>) {
    if map.len() >= CACHED_KEYS {
        map.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Digest = [1; 32];

    fn ask(cache: &KeyCache) -> u64 {
        match cache.get(&KEY) {
            Known::Ask(generation) => generation,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_lookup_that_began_before_a_change_is_not_kept_after_it() {
        let cache = KeyCache::new(true);
        let generation = ask(&cache);
        cache.invalidate();
        cache.keep(generation, KEY, Some(&Arc::from("old")));
        let generation = ask(&cache);
        cache.keep(generation, KEY, Some(&Arc::from("new")));
        assert_eq!(cache.get(&KEY), Known::Principal("new".into()));
        cache.invalidate();
        ask(&cache);
    }

    #[test]
    fn unknown_keys_are_remembered_too_and_never_beyond_the_bound() {
        let cache = KeyCache::new(true);
        cache.keep(0, KEY, None);
        assert_eq!(cache.get(&KEY), Known::Nobody);
        for n in 0..=CACHED_KEYS {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&(n as u64).to_be_bytes());
            cache.keep(0, key, None);
        }
        assert!(cache.entries.read().unwrap().unknown.len() <= CACHED_KEYS);
    }

    #[test]
    fn nothing_is_kept_where_another_process_may_change_keys() {
        let cache = KeyCache::new(false);
        cache.keep(ask(&cache), KEY, Some(&Arc::from("ci")));
        ask(&cache);
    }
}
