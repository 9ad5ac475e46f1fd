//! What a run waits for while it keeps its lease (spec: harness-api, section 12; durability, section 6): which Actions, and
//! since when. An operator sees it in `nylorun status --actors`.

use std::collections::BTreeMap;

use serde_json::json;
use tokio::time::Instant;

use crate::model::Json;
use crate::model::ids::EffectId;

/// The pending effects of one run.
#[derive(Debug, Default)]
pub(super) struct Holds(BTreeMap<EffectId, Instant>);

impl Holds {
    /// The run waits for this one from now on.
    pub(super) fn begin(&mut self, effect: EffectId) {
        self.0.entry(effect).or_insert_with(Instant::now);
    }

    /// It has its outcome.
    pub(super) fn end(&mut self, effect: &EffectId) {
        self.0.remove(effect);
    }

    /// `[{effectId, heldMs}]`.
    pub(super) fn observe(&self) -> Json {
        let one = |(effect, since): (&EffectId, &Instant)| {
            let held = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
            json!({ "effectId": effect.as_str(), "heldMs": held })
        };
        self.0.iter().map(one).collect()
    }
}
