//! Tenant settings: their names and who may set them first (spec: http-api, section 15.2; security, section 12.4).

use super::Refusal;
use crate::model::json::{Json, JsonMap, JsonText, parse};
use crate::model::sandbox::SandboxConfig;
use crate::ports::store::{AuditRow, Reads, StoreError, StoreResult, Tx};

/// `true` when every model call is answered by the fixture model.
pub const FIXTURE: &str = "model.fixture";
/// JSON text of the script that the fixture model follows; absent: the compatible one.
pub const FIXTURE_SCRIPT: &str = "model.fixture.script";
/// `auto` or `virtual`.
pub const SANDBOX_BACKEND: &str = "sandbox.backend";
/// JSON text of the sandbox configuration.
pub const SANDBOX_CONFIG: &str = "sandbox.config";
/// The provider whose model is used.
pub const ACTIVE_PROVIDER: &str = "model.active";

/// Whether every model call is answered by the fixture model.
///
/// # Errors
/// The store's.
pub fn fixture_model(reads: &mut dyn Reads) -> StoreResult<bool> {
    Ok(reads.setting(FIXTURE)?.as_deref() == Some("true"))
}

/// Which sandbox backend is preferred, by a name that every client and harness knows: `auto` or `virtual`.
///
/// # Errors
/// The store's.
pub fn sandbox_preference(reads: &mut dyn Reads) -> StoreResult<&'static str> {
    Ok(if reads.setting(SANDBOX_BACKEND)?.as_deref() == Some("virtual") { "virtual" } else { "auto" })
}

/// The sandbox configuration, every default in force.
///
/// # Errors
/// The store's; [`StoreError::Corrupt`] when what is stored is no configuration.
pub fn sandbox_config(reads: &mut dyn Reads) -> StoreResult<SandboxConfig> {
    let corrupt = |why: String| StoreError::Corrupt(format!("the setting {SANDBOX_CONFIG}: {why}"));
    let stored = match reads.setting(SANDBOX_CONFIG)? {
        Some(text) => parse(text.as_bytes()).map_err(|error| corrupt(error.to_string()))?,
        None => Json::Object(JsonMap::new()),
    };
    SandboxConfig::read(&stored).map_err(corrupt)
}

/// Reads a configuration of sandboxes that somebody sends.
///
/// # Errors
/// 400 with every contradiction, or with what is no configuration.
pub fn checked_sandbox_config(sent: &Json) -> Result<SandboxConfig, Refusal> {
    let config = SandboxConfig::read(sent).map_err(Refusal::invalid)?;
    let problems = config.problems();
    if problems.is_empty() { Ok(config) } else { Err(Refusal::problems(&problems)) }
}

/// The script of the fixture model.
///
/// # Errors
/// The store's.
pub fn fixture_script(reads: &mut dyn Reads) -> StoreResult<Option<JsonText>> {
    Ok(reads.setting(FIXTURE_SCRIPT)?.map(JsonText::from_trusted))
}

/// Turns the fixture model on with a script, or off with `None`.
///
/// # Errors
/// The store's.
pub fn put_fixture(tx: &mut dyn Tx, script: Option<&Json>) -> StoreResult<()> {
    match script {
        Some(script) => {
            tx.put_setting(FIXTURE_SCRIPT, JsonText::of(script).as_str())?;
            tx.put_setting(FIXTURE, "true")?;
        }
        None => {
            tx.delete_setting(FIXTURE_SCRIPT)?;
            tx.delete_setting(FIXTURE)?;
        }
    }
    audit(tx, "operator", "fixture.put", None)
}

/// Writes a setting that is not set yet; whether it did.
///
/// # Errors
/// The store's.
pub fn put_if_absent(tx: &mut dyn Tx, key: &str, value: &str) -> StoreResult<bool> {
    if tx.setting(key)?.is_some() {
        return Ok(false);
    }
    tx.put_setting(key, value)?;
    Ok(true)
}

/// One line of the audit for something that was done.
///
/// # Errors
/// The store's.
pub fn audit(tx: &mut dyn Tx, actor: &str, action: &str, target: Option<&str>) -> StoreResult<()> {
    let row = AuditRow {
        id: tx.uuid(),
        at: tx.now(),
        actor: actor.to_owned(),
        action: action.to_owned(),
        target: target.map(str::to_owned),
        outcome: "ok".to_owned(),
    };
    tx.put_audit(&row)
}
