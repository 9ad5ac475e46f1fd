//! `event`: what a connected harness claims of workspaces (spec: harness-api, section 15.4).

use actix::prelude::*;

use super::HarnessActor;
use super::methods;
use crate::messages::session::Claimed;
use crate::messages::workspaces::WorkspacesAt;
use crate::model::Json;
use crate::model::workspace::Claim;
use crate::ports::engine::{ApiCode, ApiError};
use crate::ports::store::StoreError;
use crate::rules::{claims, workspaces};

impl HarnessActor {
    /// A claim must belong to a run or a request of core; what it says is then taken, best effort.
    pub(super) fn claim(&mut self, id: u64, params: Json, ctx: &mut Context<Self>) -> Result<(), ApiError> {
        let claim: Claim = methods::params(params)?;
        methods::ids(&[("sessionId", claim.session_id.as_str())])?;
        if let Some(turn) = &claim.turn_id {
            methods::ids(&[("turnId", turn.as_str())])?;
        }
        if let Some(record) = &claim.record {
            methods::ids(&[("record.key", &record.key), ("record.sessionId", record.session_id.as_str())])?;
        }
        let not_held = |text: &str| Err(ApiError::new(ApiCode::RunNotHeld, text));
        let session = match &claim.run_id {
            Some(run) => {
                let session = self.run_session(run)?;
                let theirs = self.wire_run(run).is_some_and(|held| {
                    held.session_id == claim.session_id
                        || held.sandbox_owner.as_ref() == Some(&claim.session_id)
                });
                if !theirs {
                    return not_held("the claim is for another session than the run's");
                }
                Some((run.clone(), session))
            }
            None if self.wire_mut().is_some_and(|wire| wire.asked.cover(&claim.session_id)) => None,
            None => return not_held("no workspace request for this session is in flight at this connection"),
        };
        let (tenant, pod) = (&self.tree().tenant, self.pod());
        workspaces::check_record(tenant, &claim, pod).map_err(|why| ApiError::new(ApiCode::Invalid, why))?;
        if let Some(record) = &claim.record
            && pod.is_none()
        {
            // Whatever becomes of the write: this harness has the files.
            let (harness, keys) = (self.generation(), vec![record.key.clone()]);
            self.tell_supervisor(WorkspacesAt { harness, keys });
        }
        match session {
            Some((run, session)) => {
                self.serve(id, &session, Claimed { run, claim }, |()| "{}".into(), ctx);
            }
            None => self.record_claim(id, claim, ctx),
        }
        Ok(())
    }

    /// Records a claim that belongs to no run.
    fn record_claim(&mut self, id: u64, claim: Claim, ctx: &mut Context<Self>) {
        let store = self.tree().ports.store.clone();
        let recording = async move {
            let session = claim.session_id.clone();
            let recorded: Result<(), StoreError> = store.tx(move |tx| claims::record(tx, &claim)).await;
            if let Err(error) = recorded {
                tracing::warn!(%session, %error, "a workspace's claim was not recorded");
            }
        };
        self.spawn_served(id, fut::wrap_future::<_, Self>(recording).map(|(), _, _| Ok("{}".into())), ctx);
    }
}
