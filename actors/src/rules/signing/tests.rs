//! The states of signing keys and what moves them.

use std::sync::Arc;

use super::*;
use crate::ports::StoreHandle;
use crate::testing::{ManualClock, MemoryStore, SeededEntropy};

struct World {
    clock: Arc<ManualClock>,
    store: StoreHandle,
    made: std::cell::Cell<u32>,
}

impl World {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::default());
        let store = MemoryStore::new(clock.clone(), Arc::new(SeededEntropy::new(1))).handle();
        Self { clock, store, made: std::cell::Cell::new(0) }
    }

    fn fresh(&self, count: usize) -> Fresh {
        let key = || {
            let n = self.made.replace(self.made.get() + 1);
            let sealed = Sealed {
                kek_id: "kek".into(),
                nonce: vec![0; 12],
                ciphertext: vec![1],
                wrapped_dek: vec![2; 60],
            };
            let public_jwk = JsonText::of(&json!({"kty": "EC", "crv": "P-256", "x": "x", "y": n, "d": "d"}));
            NewKey { id: format!("sk_{n:026}"), public_jwk, sealed }
        };
        let mut keys: Vec<NewKey> = (0..count).map(|_| key()).collect();
        keys.reverse();
        Fresh::new(keys)
    }

    async fn ensure(&self) -> String {
        let mut fresh = self.fresh(ENSURE_KEYS);
        let rows: Result<_, StoreError> = self.store.tx(move |tx| ensure(tx, &mut fresh)).await;
        told(&rows.unwrap())
    }

    async fn rotate(&self, force: bool) -> Result<String, Refusal> {
        let mut fresh = self.fresh(ROTATE_KEYS);
        let rows = self.store.tx(move |tx| rotate(tx, &mut fresh, force, "application:ci")).await;
        rows.map(|rows| told(&rows))
    }

    async fn revoke(&self, n: u32) -> Result<SigningKeyRow, Refusal> {
        self.store.tx(move |tx| revoke(tx, &format!("sk_{n:026}"), "application:ci")).await
    }

    async fn rows(&self) -> Vec<SigningKeyRow> {
        let rows: Result<_, StoreError> = self.store.read(|r| r.signing_keys()).await;
        rows.unwrap()
    }
}

/// `0 current, 1 standby`.
fn told(rows: &[SigningKeyRow]) -> String {
    let one = |row: &SigningKeyRow| format!("{} {}", row.id[3..].trim_start_matches('0'), row.state.as_str());
    rows.iter().map(one).collect::<Vec<_>>().join(",").trim().replace(", ", ",")
}

#[tokio::test]
async fn the_first_use_makes_a_current_and_a_standby_key_and_the_next_finds_them() {
    let world = World::new();
    assert_eq!(world.ensure().await, "current,1 standby");
    assert_eq!(world.ensure().await, "current,1 standby");
    let rows = world.rows().await;
    assert_eq!(rows[0].activated_at, Some(rows[0].created_at));
    assert_eq!(rows[1].activated_at, None);
}

#[tokio::test]
async fn a_rotation_moves_each_key_one_state_on_and_makes_a_new_standby() {
    let world = World::new();
    // A Tenant that never signed has its keys made first.
    assert_eq!(world.rotate(false).await.unwrap(), "previous,1 current,2 standby");
    world.clock.advance_ms(SIGNING_KEY_REST_MS);
    let later = world.rotate(false).await.unwrap();
    assert!(later.starts_with("revoked,1 previous,2 current,") && later.ends_with(" standby"), "{later}");
    let rows = world.rows().await;
    let first = &rows[0];
    let rest = first.revoked_at.unwrap().ms_since(first.retired_at.unwrap());
    assert_eq!(rest, SIGNING_KEY_REST_MS);
    assert_eq!(rows[1].activated_at, first.retired_at);
}

#[tokio::test]
async fn a_second_rotation_waits_until_no_token_of_the_previous_key_lives_unless_it_is_forced() {
    let world = World::new();
    world.rotate(false).await.unwrap();
    world.clock.advance_ms(1_500);
    let before = world.rows().await;
    let Err(Refusal::Conflict { details: Some(details), .. }) = world.rotate(false).await else {
        panic!("refused")
    };
    assert_eq!(details, json!({"retryAfterSeconds": 959}));
    assert_eq!(world.rows().await, before);
    assert!(world.rotate(true).await.unwrap().starts_with("revoked,1 previous,2 current"));
}

#[tokio::test]
async fn any_key_but_the_current_one_can_be_revoked_and_once_is_enough() {
    let world = World::new();
    world.rotate(false).await.unwrap();
    let previous = world.revoke(0).await.unwrap();
    assert_eq!((previous.state, previous.retired_at.is_some()), (KeyState::Revoked, true));
    world.clock.advance_ms(5);
    assert_eq!(world.revoke(0).await.unwrap(), previous);
    assert!(matches!(world.revoke(1).await, Err(Refusal::Conflict { .. })));
    assert!(matches!(world.revoke(9).await, Err(Refusal::NotFound(_))));
    let malformed = world.store.tx(|tx| revoke(tx, "sk_1' OR 1", "a")).await;
    assert!(matches!(malformed, Err(Refusal::NotFound(_))));
    // Without a previous key nothing is waited for.
    assert_eq!(world.revoke(2).await.unwrap().state, KeyState::Revoked);
    assert!(world.rotate(false).await.is_ok());
}

#[tokio::test]
async fn a_standby_key_that_was_revoked_has_a_successor_at_the_next_use() {
    let world = World::new();
    world.ensure().await;
    world.revoke(1).await.unwrap();
    assert!(!is_complete(&world.rows().await));
    let told = world.ensure().await;
    assert!(told.starts_with("current,1 revoked,") && told.ends_with(" standby"), "{told}");
}

#[tokio::test]
async fn a_standby_key_takes_over_when_there_is_no_current_one() {
    let world = World::new();
    world.ensure().await;
    let lose = world.store.tx(|tx| {
        let mut row = tx.signing_keys()?.remove(0);
        row.state = KeyState::Revoked;
        tx.put_signing_key_state(&row)
    });
    let lost: Result<(), StoreError> = lose.await;
    lost.unwrap();
    let told = world.ensure().await;
    assert!(told.starts_with("revoked,1 current,") && told.ends_with(" standby"), "{told}");
}

#[tokio::test]
async fn the_published_set_has_every_key_but_revoked_ones_and_nothing_of_private_halves() {
    let world = World::new();
    world.rotate(false).await.unwrap();
    world.rotate(true).await.unwrap();
    let rows = world.rows().await;
    let set = jwks(&rows).unwrap();
    let keys = set["keys"].as_array().unwrap();
    assert_eq!(keys.len(), 3);
    let names: Vec<&String> = keys[0].as_object().unwrap().keys().collect();
    assert_eq!(names, ["kty", "crv", "x", "y", "kid", "alg", "use"]);
    let view = view(&rows[0]).unwrap();
    assert_eq!((&view["state"], &view["alg"]), (&json!("revoked"), &json!("ES256")));
    assert!(view["retiredAt"].is_string() && view["revokedAt"].is_string());
}

#[tokio::test]
async fn rotations_at_once_leave_one_key_in_each_state() {
    let world = World::new();
    let (a, b, c) = tokio::join!(world.rotate(false), world.rotate(false), world.rotate(false));
    let done = [a, b, c].iter().filter(|result| result.is_ok()).count();
    assert_eq!(done, 1);
    assert_eq!(told(&world.rows().await), "previous,1 current,2 standby");
}
