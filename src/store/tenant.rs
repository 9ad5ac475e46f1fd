//! Settings, principals, credentials, answers, audit and usage in diesel.

use diesel::prelude::*;
use diesel::upsert::excluded;
use nylorun_actors::model::json::JsonText;
use nylorun_actors::ports::store::{
    AuditRow, CredentialRow, IdempotencyRow, PrincipalRow, StoreResult, TenantReads, TenantTx, UsageRow,
};

use super::access::Access;
use super::prepared::prepared;
use super::rows;
use super::schema::{audit, credentials, idempotency, model_usage, principals, settings};

impl TenantReads for Access<'_> {
    fn setting(&mut self, key: &str) -> StoreResult<Option<String>> {
        if let Some(known) = self.memory().and_then(|memory| memory.setting(key).cloned()) {
            return Ok(known);
        }
        let value: Option<String> =
            self.run(|c| settings::table.find(key).select(settings::value).get_result(c).optional())?;
        if let Some(memory) = self.memory() {
            memory.remember_setting(key, value.clone());
        }
        Ok(value)
    }

    fn principal_by_hash(&mut self, hash: &str) -> StoreResult<Option<PrincipalRow>> {
        let row: Option<rows::Principal> = self.run(|c| {
            principals::table
                .filter(principals::token_hash.eq(hash))
                .select(rows::Principal::as_select())
                .get_result(c)
                .optional()
        })?;
        Ok(row.map(Into::into))
    }

    fn principals(&mut self) -> StoreResult<Vec<PrincipalRow>> {
        let found: Vec<rows::Principal> = self
            .run(|c| principals::table.order(principals::id).select(rows::Principal::as_select()).load(c))?;
        Ok(found.into_iter().map(Into::into).collect())
    }

    fn credential(&mut self, vault: &str, id: &str) -> StoreResult<Option<CredentialRow>> {
        let row: Option<rows::Credential> = self.run(|c| {
            credentials::table
                .find((vault, id))
                .select(rows::Credential::as_select())
                .get_result(c)
                .optional()
        })?;
        Ok(row.map(Into::into))
    }

    fn credentials(&mut self, vault: &str) -> StoreResult<Vec<CredentialRow>> {
        let found: Vec<rows::Credential> = self.run(|c| {
            credentials::table
                .filter(credentials::vault_id.eq(vault))
                .order(credentials::id)
                .select(rows::Credential::as_select())
                .load(c)
        })?;
        Ok(found.into_iter().map(Into::into).collect())
    }

    fn idempotency(&mut self, key: &str) -> StoreResult<Option<IdempotencyRow>> {
        let row: Option<(String, String)> = self.run(|c| {
            idempotency::table
                .find(key)
                .select((idempotency::body_hash, idempotency::response))
                .get_result(c)
                .optional()
        })?;
        Ok(row.map(|(body_hash, response)| IdempotencyRow {
            body_hash,
            response: JsonText::from_trusted(response),
        }))
    }

    fn usage_of_effect(&mut self, effect: &str) -> StoreResult<Vec<UsageRow>> {
        let found: Vec<rows::Usage> = self.run(|c| {
            model_usage::table
                .filter(model_usage::effect_key.eq(effect))
                .order((model_usage::created_at, model_usage::id))
                .select(rows::Usage::as_select())
                .load(c)
        })?;
        Ok(found.into_iter().map(Into::into).collect())
    }
}

impl TenantTx for Access<'_> {
    fn put_setting(&mut self, key: &str, value: &str) -> StoreResult<()> {
        self.write(|c| {
            prepared!(
                c,
                diesel::replace_into(settings::table)
                    .values((settings::key.eq(key), settings::value.eq(value)))
            )
        })?;
        self.hot()?.forget_settings();
        Ok(())
    }

    fn delete_setting(&mut self, key: &str) -> StoreResult<()> {
        self.write(|c| prepared!(c, diesel::delete(settings::table.find(key))))?;
        self.hot()?.forget_settings();
        Ok(())
    }

    fn put_principal(&mut self, row: &PrincipalRow) -> StoreResult<()> {
        // Not REPLACE, which would take the key from another principal.
        self.write(|c| {
            prepared!(
                c,
                diesel::insert_into(principals::table)
                    .values((
                        principals::id.eq(&row.id),
                        principals::role.eq(&row.role),
                        principals::token_hash.eq(&row.token_hash),
                        principals::created_at.eq(row.created_at.0),
                    ))
                    .on_conflict(principals::id)
                    .do_update()
                    .set((
                        principals::role.eq(excluded(principals::role)),
                        principals::token_hash.eq(excluded(principals::token_hash)),
                        principals::created_at.eq(excluded(principals::created_at)),
                    ))
            )
        })?;
        Ok(())
    }

    fn delete_principal(&mut self, id: &str) -> StoreResult<bool> {
        let deleted = self.write(|c| prepared!(c, diesel::delete(principals::table.find(id))))?;
        Ok(deleted > 0)
    }

    fn put_credential(&mut self, row: &CredentialRow) -> StoreResult<()> {
        self.write(|c| {
            prepared!(
                c,
                diesel::replace_into(credentials::table).values((
                    credentials::vault_id.eq(&row.vault_id),
                    credentials::id.eq(&row.id),
                    credentials::name.eq(&row.name),
                    credentials::kind.eq(&row.kind),
                    credentials::binding.eq(row.binding.as_str()),
                    credentials::expires_at.eq(row.expires_at.as_deref()),
                    credentials::created_at.eq(row.created_at.0),
                    credentials::rotated_at.eq(row.rotated_at.map(|at| at.0)),
                    credentials::kek_id.eq(&row.kek_id),
                    credentials::nonce.eq(&row.nonce),
                    credentials::ciphertext.eq(&row.ciphertext),
                    credentials::wrapped_dek.eq(&row.wrapped_dek),
                ))
            )
        })?;
        Ok(())
    }

    fn delete_credential(&mut self, vault: &str, id: &str) -> StoreResult<bool> {
        let deleted = self.write(|c| prepared!(c, diesel::delete(credentials::table.find((vault, id)))))?;
        Ok(deleted > 0)
    }

    fn put_idempotency(&mut self, key: &str, row: &IdempotencyRow) -> StoreResult<()> {
        self.write(|c| {
            prepared!(
                c,
                diesel::insert_into(idempotency::table).values((
                    idempotency::key.eq(key),
                    idempotency::body_hash.eq(&row.body_hash),
                    idempotency::response.eq(row.response.as_str()),
                ))
            )
        })?;
        Ok(())
    }

    fn put_audit(&mut self, row: &AuditRow) -> StoreResult<()> {
        self.write(|c| {
            prepared!(
                c,
                diesel::insert_into(audit::table).values((
                    audit::id.eq(&row.id),
                    audit::at.eq(row.at.0),
                    audit::actor.eq(&row.actor),
                    audit::action.eq(&row.action),
                    audit::target.eq(row.target.as_deref()),
                    audit::outcome.eq(&row.outcome),
                ))
            )
        })?;
        Ok(())
    }

    fn put_usage(&mut self, row: &UsageRow) -> StoreResult<()> {
        let [input, output, total, cached, cache_write, reasoning] = row.tokens;
        self.write(|c| {
            prepared!(
                c,
                diesel::insert_into(model_usage::table).values((
                    model_usage::id.eq(&row.id),
                    model_usage::effect_key.eq(&row.effect_key),
                    model_usage::session_id.eq(row.session_id.as_str()),
                    model_usage::turn_id.eq(row.turn_id.as_str()),
                    model_usage::agent_id.eq(row.agent_id.as_str()),
                    model_usage::provider.eq(row.provider.as_deref()),
                    model_usage::model.eq(row.model.as_deref()),
                    model_usage::input_tokens.eq(input),
                    model_usage::output_tokens.eq(output),
                    model_usage::total_tokens.eq(total),
                    model_usage::cached_tokens.eq(cached),
                    model_usage::cache_write_tokens.eq(cache_write),
                    model_usage::reasoning_tokens.eq(reasoning),
                    model_usage::cost_usd.eq(row.cost_usd),
                    model_usage::duplicate.eq(row.duplicate),
                    model_usage::created_at.eq(row.created_at.0),
                ))
            )
        })?;
        Ok(())
    }
}
