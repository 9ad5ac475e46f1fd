//! Outcomes of Actions that a held run waits for (spec: harness-api, section 12).

use actix::prelude::*;

use super::{Advance, SessionActor};
use crate::messages::harness::EffectResolved;
use crate::messages::session::ActionResolved;

impl Handler<ActionResolved> for SessionActor {
    type Result = ();

    /// A run that waits for the Action goes on with its outcome. The commit has made the session runnable all the same, so
    /// it is looked at again when the run is over: an outcome that crossed the end of the hold is not left lying.
    fn handle(&mut self, msg: ActionResolved, ctx: &mut Self::Context) {
        let ActionResolved { effect, outcome } = msg;
        self.made_progress();
        if let Advance::Held(held) = &mut self.state
            && held.in_flight.remove(&effect).is_some()
            && let Some(harness) = &held.harness
        {
            // One for each Action, and the harness has room for the answers of what it asked: rare control.
            harness.do_send(EffectResolved { run: held.run.clone(), effect, outcome });
        }
        self.wake(ctx);
    }
}
