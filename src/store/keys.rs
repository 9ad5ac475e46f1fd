//! Signing keys in diesel (spec: security, section 5; durability, section 3.1).

use diesel::prelude::*;
use nylorun_actors::model::Micros;
use nylorun_actors::model::json::JsonText;
use nylorun_actors::ports::StoreError;
use nylorun_actors::ports::store::{KeyReads, KeyState, KeyTx, SigningKeyRow, StoreResult};

use super::access::Access;
use super::prepared::{change, prepared};
use super::schema::signing_keys;

#[derive(Queryable, Selectable)]
#[diesel(table_name = signing_keys)]
struct Key {
    id: String,
    state: String,
    alg: String,
    public_jwk: String,
    created_at: i64,
    activated_at: Option<i64>,
    retired_at: Option<i64>,
    revoked_at: Option<i64>,
    kek_id: String,
    nonce: Vec<u8>,
    ciphertext: Vec<u8>,
    wrapped_dek: Vec<u8>,
}

impl Key {
    fn row(self) -> StoreResult<SigningKeyRow> {
        let state = KeyState::of(&self.state)
            .ok_or_else(|| StoreError::Corrupt(format!("signing key {} is {}", self.id, self.state)))?;
        Ok(SigningKeyRow {
            id: self.id,
            state,
            alg: self.alg,
            public_jwk: JsonText::from_trusted(self.public_jwk),
            created_at: Micros(self.created_at),
            activated_at: self.activated_at.map(Micros),
            retired_at: self.retired_at.map(Micros),
            revoked_at: self.revoked_at.map(Micros),
            kek_id: self.kek_id,
            nonce: self.nonce,
            ciphertext: self.ciphertext,
            wrapped_dek: self.wrapped_dek,
        })
    }
}

impl KeyReads for Access<'_> {
    fn signing_keys(&mut self) -> StoreResult<Vec<SigningKeyRow>> {
        let found: Vec<Key> =
            self.run(|c| signing_keys::table.order(signing_keys::id).select(Key::as_select()).load(c))?;
        found.into_iter().map(Key::row).collect()
    }

    fn signing_key(&mut self, id: &str) -> StoreResult<Option<SigningKeyRow>> {
        let found: Option<Key> =
            self.run(|c| signing_keys::table.find(id).select(Key::as_select()).get_result(c).optional())?;
        found.map(Key::row).transpose()
    }

    fn current_signing_key(&mut self) -> StoreResult<Option<SigningKeyRow>> {
        let found: Option<Key> = self.run(|c| {
            signing_keys::table
                .filter(signing_keys::state.eq(KeyState::Current.as_str()))
                .select(Key::as_select())
                .get_result(c)
                .optional()
        })?;
        found.map(Key::row).transpose()
    }
}

impl KeyTx for Access<'_> {
    fn insert_signing_key(&mut self, row: &SigningKeyRow) -> StoreResult<()> {
        self.write(|c| {
            prepared!(
                c,
                diesel::insert_into(signing_keys::table).values((
                    signing_keys::id.eq(&row.id),
                    signing_keys::state.eq(row.state.as_str()),
                    signing_keys::alg.eq(&row.alg),
                    signing_keys::public_jwk.eq(row.public_jwk.as_str()),
                    signing_keys::created_at.eq(row.created_at.0),
                    signing_keys::activated_at.eq(row.activated_at.map(|at| at.0)),
                    signing_keys::retired_at.eq(row.retired_at.map(|at| at.0)),
                    signing_keys::revoked_at.eq(row.revoked_at.map(|at| at.0)),
                    signing_keys::kek_id.eq(&row.kek_id),
                    signing_keys::nonce.eq(&row.nonce),
                    signing_keys::ciphertext.eq(&row.ciphertext),
                    signing_keys::wrapped_dek.eq(&row.wrapped_dek),
                ))
            )
        })?;
        Ok(())
    }

    fn put_signing_key_state(&mut self, row: &SigningKeyRow) -> StoreResult<()> {
        let changed = self.write(|c| {
            change!(
                c,
                signing_keys::table,
                signing_keys::id.eq(&row.id),
                (
                    signing_keys::state.eq(row.state.as_str()),
                    signing_keys::activated_at.eq(row.activated_at.map(|at| at.0)),
                    signing_keys::retired_at.eq(row.retired_at.map(|at| at.0)),
                    signing_keys::revoked_at.eq(row.revoked_at.map(|at| at.0)),
                )
            )
        })?;
        if changed == 0 {
            return Err(StoreError::Missing(format!("signing key {}", row.id)));
        }
        Ok(())
    }
}
