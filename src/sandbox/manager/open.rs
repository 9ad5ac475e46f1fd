//! Workspaces are opened and stopped, with their records and events.

use std::sync::Arc;

use nylorun_actors::model::sandbox::network::describe;
use nylorun_actors::model::workspace::{
    DEFAULT_IMAGE, ToolOutcome, WorkspaceRecord, WorkspaceSession, WorkspaceState,
};
use nylorun_actors::ports::workspaces::Claims;

use super::super::backend::{Backend, Space, limits};
use super::super::events;
use super::Manager;
use super::calls::Ask;
use super::live::Live;

impl Manager {
    pub(super) fn now(&self) -> String {
        self.0.clock.now().to_iso()
    }

    /// Writes a record; what is known of the workspace from before is kept.
    fn record(&self, key: &str, session: &WorkspaceSession, state: WorkspaceState) -> WorkspaceRecord {
        let (before, now) = (self.0.records.get(key), self.now());
        let record = WorkspaceRecord {
            key: key.to_owned(),
            session_id: session.owner_id.clone(),
            sandbox_id: session.sandbox_id.clone(),
            backend: "virtual".to_owned(),
            image: before.as_ref().map_or_else(|| DEFAULT_IMAGE.to_owned(), |before| before.image.clone()),
            state,
            created_at: before.map_or_else(|| now.clone(), |before| before.created_at),
            updated_at: now,
        };
        self.0.records.put(record.clone());
        record
    }

    /// Records a state of a workspace, and claims it.
    async fn tell(&self, key: &str, ask: &Ask, state: WorkspaceState, more: events::More) {
        let record = self.record(key, &ask.session, state);
        let session = WorkspaceSession { owner_id: record.session_id.clone(), ..ask.session.clone() };
        ask.claims.claim(events::state(&session, state, more, Some(record))).await;
    }

    /// A workspace as a backend sees it.
    pub(super) fn space(&self, key: &str, ask: &Ask) -> Space {
        Space {
            key: key.to_owned(),
            folder: self.0.folders.of(key),
            spec: ask.spec.clone(),
            limits: limits(&ask.spec, self.0.choice.limits()),
        }
    }

    /// Opens the workspace if it is not open. The caller holds its queue.
    ///
    /// # Errors
    /// The outcome that says that it cannot be.
    pub(super) async fn open(
        &self,
        space: &Space,
        live: &Live,
        ask: &Ask,
        backend: &Arc<dyn Backend>,
    ) -> Result<(), ToolOutcome> {
        if live.state().open {
            return Ok(());
        }
        let key = &space.key;
        let before = self.0.records.get(key).is_some();
        let isolation = Some(backend.isolation());
        // A spec that says nothing has no network here.
        let network = ask.spec.get("network").map(|_| describe(&ask.spec));
        let more =
            events::More { isolation, network: network.clone(), reattach: before, ..events::More::default() };
        self.tell(key, ask, WorkspaceState::Creating, more).await;
        let made = match self.0.folders.make(key).await {
            Ok(created) => backend.open(space, created).await.map(|()| created),
            Err(error) => Err(format!("the workspace cannot be made: {error}")),
        };
        match made {
            Ok(created) => {
                let lost = before && created;
                let more = events::More { isolation, network, lost, ..events::More::default() };
                self.tell(key, ask, WorkspaceState::Running, more).await;
                live.state().open = true;
                Ok(())
            }
            Err(error) => Err(self.start_failed(key, live, ask, &error).await),
        }
    }

    /// A workspace cannot be opened, or the cage of an open one does not stand: nothing ran.
    pub(super) async fn start_failed(&self, key: &str, live: &Live, ask: &Ask, why: &str) -> ToolOutcome {
        live.state().open = false;
        let more = events::More { error: Some(why.to_owned()), ..events::More::default() };
        self.tell(key, ask, WorkspaceState::Stopped, more).await;
        ToolOutcome::failed("sandbox.start_failed", format!("The sandbox cannot be started: {why}"))
    }

    /// Has the backend let go of a workspace.
    pub(super) async fn let_go(&self, key: &str) -> Result<(), String> {
        match &self.selection().await.backend {
            Some(backend) => backend.stop(key).await,
            None => Ok(()),
        }
    }

    /// Stops a workspace: its temporary files go, the others stay. The caller holds its queue.
    pub(super) async fn stop(&self, key: &str, live: &Live, claims: Option<&Arc<dyn Claims>>) {
        live.state().open = false;
        let let_go = self.let_go(key).await;
        let cleared = self.0.folders.clear_tmp(key).await.map_err(|error| error.to_string());
        let record = self.record(key, &live.session, WorkspaceState::Stopped);
        if let Some(claims) = claims {
            let session = WorkspaceSession {
                owner_id: record.session_id.clone(),
                sandbox_id: live.session.sandbox_id.clone(),
                active_turn_id: None,
            };
            let more = events::More { error: let_go.and(cleared).err(), ..events::More::default() };
            claims.claim(events::state(&session, WorkspaceState::Stopped, more, Some(record))).await;
        }
    }
}
