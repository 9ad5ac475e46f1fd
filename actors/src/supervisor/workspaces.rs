//! Who serves a workspace: what the supervisor is asked and told of it.

use actix::prelude::*;

use super::TenantSupervisor;
use super::places::Found;
use crate::messages::workspaces::{
    FindWorkspace, Whereabouts, WorkspaceHarness, WorkspaceHarnesses, WorkspacesAt,
};

impl TenantSupervisor {
    fn workspace_harnesses(&self) -> Vec<WorkspaceHarness> {
        let serving = self.broker.serving(None);
        serving.map(|(harness, addr)| WorkspaceHarness { harness, addr: addr.clone() }).collect()
    }
}

impl Handler<FindWorkspace> for TenantSupervisor {
    type Result = MessageResult<FindWorkspace>;

    fn handle(&mut self, msg: FindWorkspace, _ctx: &mut Self::Context) -> Self::Result {
        if let Some(pod) = &msg.pod {
            // Of two connections of one pod the later is the engine that lives.
            let host = self.broker.serving(Some(pod)).last();
            return MessageResult(match host {
                Some((_, addr)) => Whereabouts::At(addr.clone()),
                None => Whereabouts::PodAway,
            });
        }
        let serving = self.workspace_harnesses();
        let ids: Vec<u64> = serving.iter().map(|h| h.harness).collect();
        let preferred = self.broker.last_of(&msg.owner);
        let found = self.places.find(&msg.key, msg.recorded, msg.asked, &ids, preferred);
        MessageResult(match found {
            Found::Nobody => Whereabouts::Nobody,
            Found::Away => Whereabouts::Away,
            Found::Ask => Whereabouts::Ask(serving),
            Found::At(id) => match serving.into_iter().find(|h| h.harness == id) {
                Some(harness) => Whereabouts::At(harness.addr),
                None => Whereabouts::Away,
            },
        })
    }
}

impl Handler<WorkspaceHarnesses> for TenantSupervisor {
    type Result = MessageResult<WorkspaceHarnesses>;

    fn handle(&mut self, _msg: WorkspaceHarnesses, _ctx: &mut Self::Context) -> Self::Result {
        MessageResult(self.workspace_harnesses())
    }
}

impl Handler<WorkspacesAt> for TenantSupervisor {
    type Result = ();

    fn handle(&mut self, msg: WorkspacesAt, _ctx: &mut Self::Context) {
        // Of a harness that has gone meanwhile nothing is kept.
        if self.broker.serving(None).any(|(id, _)| id == msg.harness) {
            self.places.learn(msg.harness, msg.keys);
        }
    }
}
