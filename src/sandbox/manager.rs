//! The manager: opens workspaces, runs their commands one after the other, stops what is idle, removes what is told
//! (spec: sandbox, section 11). It owns no timer and no store.
//!
//! | File | Has |
//! |---|---|
//! | this one | what a manager is made of, and what it answers |
//! | `live` | which workspaces are in use, and who waits for them |
//! | `open` | workspaces are opened and stopped; records and events of it |
//! | `calls` | one tool, one look |
//! | `upkeep` | what is idle, what nobody knows, what shall go |

mod calls;
mod live;
mod open;
mod upkeep;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use nylorun_actors::model::ids::TenantId;
use nylorun_actors::model::workspace::{
    BytesAnswer, ListAnswer, Removal, ToolOutcome, WorkspaceBytes, WorkspaceCall, WorkspaceList,
    WorkspaceRecord, WorkspaceReport,
};
use nylorun_actors::ports::Clock;
use nylorun_actors::ports::engine::{ApiCode, ApiError};
use nylorun_actors::ports::workspaces::{Claims, WorkspaceManager};
use tokio::sync::{OnceCell, watch};

use self::calls::Ask;
use self::live::Live;
use super::choice::{Choice, Selection};
use super::folders::Folders;
use super::input::Input;
use super::job::{Answer, Work};
use super::records::Records;
use super::run::Cancelled;

/// What a manager is made of.
pub struct Parts {
    /// Whose workspaces.
    pub tenant: TenantId,
    /// Where they are.
    pub root: PathBuf,
    /// Which backend is used.
    pub choice: Arc<Choice>,
    /// For the record.
    pub clock: Arc<dyn Clock>,
}

/// The workspaces of one Tenant in this process. Cheap to clone.
#[derive(Clone)]
pub struct Manager(Arc<Inner>);

struct Inner {
    tenant: TenantId,
    folders: Folders,
    records: Records,
    clock: Arc<dyn Clock>,
    choice: Arc<Choice>,
    live: Mutex<HashMap<String, Arc<Live>>>,
    /// Folders without a record were looked for.
    reconciled: OnceCell<()>,
    closing: watch::Sender<bool>,
}

fn internal(message: impl Into<String>) -> ApiError {
    ApiError::new(ApiCode::Internal, message)
}

impl Manager {
    /// Workspaces below a folder, which is made when it is not there.
    ///
    /// # Errors
    /// The system's.
    pub fn new(parts: Parts) -> std::io::Result<Self> {
        let Parts { tenant, root, choice, clock } = parts;
        let folders = Folders::open(root)?;
        let records = Records::open(folders.root());
        Ok(Self(Arc::new(Inner {
            tenant,
            folders,
            records,
            clock,
            choice,
            live: Mutex::default(),
            reconciled: OnceCell::new(),
            closing: watch::channel(false).0,
        })))
    }

    /// Which backend is used; chosen when it is asked for first.
    pub async fn selection(&self) -> &Selection {
        self.0.choice.selection().await
    }

    /// Runs work on a task of its own: it goes on to its orderly end, whatever becomes of the caller, and is told to
    /// hurry when the caller is gone.
    fn spawn<T, F>(&self, work: impl FnOnce(Self, Cancelled) -> F) -> BoxFuture<'static, Result<T, ApiError>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ApiError>> + Send + 'static,
    {
        struct Caller(watch::Sender<bool>);
        impl Drop for Caller {
            fn drop(&mut self) {
                self.0.send_replace(true);
            }
        }
        let (cancel, sign) = watch::channel(false);
        let caller = Caller(cancel);
        let (work, manager) = (work(self.clone(), sign), self.clone());
        let task = tokio::spawn(async move {
            let done = work.await;
            manager.0.folders.prepare();
            done
        });
        async move {
            let done = task.await;
            drop(caller);
            done.unwrap_or_else(|error| Err(internal(format!("a workspace's work was lost: {error}"))))
        }
        .boxed()
    }
}

impl WorkspaceManager for Manager {
    fn call(
        &self,
        call: WorkspaceCall,
        claims: Arc<dyn Claims>,
    ) -> BoxFuture<'static, Result<ToolOutcome, ApiError>> {
        let WorkspaceCall { session, spec, tool, input } = call;
        let input = match Input::read(tool, &input) {
            Ok(input) => input,
            Err(outcome) => return async move { Ok(outcome) }.boxed(),
        };
        self.spawn(move |manager, sign| {
            let place = manager.line_up(&session, &spec);
            manager.run(Ask { session, spec, claims, sign }, place, tool, input)
        })
    }

    fn list(
        &self,
        list: WorkspaceList,
        claims: Arc<dyn Claims>,
    ) -> BoxFuture<'static, Result<ListAnswer, ApiError>> {
        let WorkspaceList { session, spec, list } = list;
        self.spawn(move |manager, sign| {
            let place = manager.line_up(&session, &spec);
            async move {
                let path = list.dir.clone();
                let work = Work::List(list.dir, list.max_entries);
                let looked = manager.look(Ask { session, spec, claims, sign }, place, work, false).await?;
                Ok(match looked {
                    Ok(Some(Answer::List(answer))) => answer,
                    Ok(None) => ListAnswer::Missing { path },
                    Err(ToolOutcome::Failed { code, message }) => ListAnswer::Failed { code, message },
                    _ => return Err(internal("a helper answered something else")),
                })
            }
        })
    }

    fn bytes(
        &self,
        bytes: WorkspaceBytes,
        claims: Arc<dyn Claims>,
    ) -> BoxFuture<'static, Result<BytesAnswer, ApiError>> {
        let WorkspaceBytes { session, spec, bytes } = bytes;
        self.spawn(move |manager, sign| {
            let place = manager.line_up(&session, &spec);
            async move {
                let work = Work::Bytes(bytes.path, bytes.max_bytes);
                let looked = manager.look(Ask { session, spec, claims, sign }, place, work, true).await?;
                Ok(match looked {
                    Ok(Some(Answer::Bytes(answer))) => answer,
                    Err(ToolOutcome::Failed { code, message }) => BytesAnswer::Failed { code, message },
                    _ => return Err(internal("a helper answered something else")),
                })
            }
        })
    }

    fn report(&self) -> BoxFuture<'static, WorkspaceReport> {
        let manager = self.clone();
        async move { manager.selection().await.report.clone() }.boxed()
    }

    fn sweep(
        &self,
        now: Option<f64>,
        claims: Arc<dyn Claims>,
    ) -> BoxFuture<'static, Result<Vec<WorkspaceRecord>, ApiError>> {
        self.spawn(move |manager, _| manager.sweep(now, claims))
    }

    fn remove(&self, what: Removal) -> BoxFuture<'static, Result<(), ApiError>> {
        self.spawn(move |manager, _| manager.remove(what))
    }

    fn close(&self, claims: Option<Arc<dyn Claims>>) -> BoxFuture<'static, ()> {
        let manager = self.clone();
        async move {
            manager.0.closing.send_replace(true);
            for (key, live) in manager.all_live() {
                let _turn = live.queue.lock().await;
                let open = live.state().open;
                if open {
                    manager.stop(&key, &live, claims.as_ref()).await;
                }
            }
            manager.0.folders.close().await;
            let settled = manager.clone();
            // A task that panics has said so.
            let _ = tokio::task::spawn_blocking(move || settled.0.records.settle()).await;
            // One that was never asked for holds nothing.
            if let Some(backend) = manager.0.choice.made().and_then(|made| made.backend.as_ref()) {
                backend.close().await;
            }
        }
        .boxed()
    }
}
