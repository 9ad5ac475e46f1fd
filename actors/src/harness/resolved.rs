//! Outcomes that arrive for a run while it is held (spec: harness-api, section 12).

use std::cell::RefCell;
use std::collections::HashMap;

use tokio::sync::Notify;

use crate::model::effect::Outcome;
use crate::model::ids::EffectId;

/// Outcomes of pending effects that arrived for a run, whether or not somebody waits for them yet.
#[derive(Default)]
pub struct Resolved {
    outcomes: RefCell<HashMap<EffectId, Outcome>>,
    arrived: Notify,
}

impl Resolved {
    /// An outcome has arrived. Duplicates are harmless.
    pub fn put(&self, effect: EffectId, outcome: Outcome) {
        self.outcomes.borrow_mut().insert(effect, outcome);
        self.arrived.notify_waiters();
    }

    /// The outcome of an effect, as soon as it is there.
    pub async fn get(&self, effect: &EffectId) -> Outcome {
        loop {
            let arrived = self.arrived.notified();
            if let Some(outcome) = self.outcomes.borrow().get(effect) {
                return outcome.clone();
            }
            arrived.await;
        }
    }
}
