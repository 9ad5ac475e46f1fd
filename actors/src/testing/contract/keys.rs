//! Signing keys.

use super::samples::json;
use super::{Subject, both, tx};
use crate::model::Micros;
use crate::ports::store::{KeyState, SigningKeyRow, StoreError};

fn row(id: &str, state: KeyState) -> SigningKeyRow {
    SigningKeyRow {
        id: id.to_owned(),
        state,
        alg: "ES256".to_owned(),
        public_jwk: json(r#"{"kty":"EC","crv":"P-256","x":"x","y":"y"}"#),
        created_at: Micros(1),
        activated_at: None,
        retired_at: None,
        revoked_at: None,
        kek_id: "kek".to_owned(),
        nonce: vec![7; 12],
        ciphertext: vec![0, 255, 0],
        wrapped_dek: vec![9; 60],
    }
}

pub async fn signing_keys_come_back_as_written_and_change_state_alone(s: &mut dyn Subject) {
    let (b, a) = (row("sk_b", KeyState::Current), row("sk_a", KeyState::Standby));
    let (first, second) = (b.clone(), a.clone());
    tx(s, move |t| {
        t.insert_signing_key(&first)?;
        t.insert_signing_key(&second)
    })
    .await
    .unwrap();
    assert_eq!(both(s, |r| r.signing_keys()).await, [a.clone(), b.clone()]);
    assert_eq!(both(s, |r| r.signing_key("sk_b")).await, Some(b.clone()));
    assert_eq!(both(s, |r| r.signing_key("sk_c")).await, None);
    assert_eq!(both(s, |r| r.current_signing_key()).await, Some(b.clone()));

    let gone = SigningKeyRow {
        state: KeyState::Revoked,
        activated_at: Some(Micros(2)),
        retired_at: Some(Micros(3)),
        revoked_at: Some(Micros(4)),
        ..b
    };
    // Nothing else of it is written.
    let write = SigningKeyRow { alg: "none".to_owned(), ciphertext: vec![1], ..gone.clone() };
    tx(s, move |t| t.put_signing_key_state(&write)).await.unwrap();
    assert_eq!(both(s, |r| r.signing_key("sk_b")).await, Some(gone.clone()));
    assert_eq!(both(s, |r| r.current_signing_key()).await, None);
    s.reopen();
    assert_eq!(both(s, |r| r.signing_keys()).await, [a, gone]);
    let missing = row("sk_c", KeyState::Previous);
    let missing = tx(s, move |t| t.put_signing_key_state(&missing)).await;
    assert!(matches!(missing, Err(StoreError::Missing(_))), "{missing:?}");
}

pub async fn one_signing_key_has_each_living_state(s: &mut dyn Subject) {
    let first = row("sk_a", KeyState::Current);
    tx(s, move |t| t.insert_signing_key(&first)).await.unwrap();
    let same = row("sk_a", KeyState::Revoked);
    let same = tx(s, move |t| t.insert_signing_key(&same)).await;
    assert!(matches!(same, Err(StoreError::Conflict(_))), "{same:?}");
    for state in [KeyState::Standby, KeyState::Previous] {
        let fresh = row(state.as_str(), state);
        tx(s, move |t| t.insert_signing_key(&fresh)).await.unwrap();
    }
    for state in [KeyState::Standby, KeyState::Current, KeyState::Previous] {
        let second = row("sk_z", state);
        let second = tx(s, move |t| t.insert_signing_key(&second)).await;
        assert!(matches!(second, Err(StoreError::Conflict(_))), "{state:?}: {second:?}");
    }
    let taken = row("standby", KeyState::Current);
    let taken = tx(s, move |t| t.put_signing_key_state(&taken)).await;
    assert!(matches!(taken, Err(StoreError::Conflict(_))), "{taken:?}");
    for id in ["sk_y", "sk_z"] {
        let revoked = row(id, KeyState::Revoked);
        tx(s, move |t| t.insert_signing_key(&revoked)).await.unwrap();
    }
    assert_eq!(both(s, |r| Ok(r.signing_keys()?.len())).await, 5);
}
