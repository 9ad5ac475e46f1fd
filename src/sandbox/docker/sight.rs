//! What the tools but for `bash` see: the workspace and its temporary files, and nothing of the image.

use nylorun_actors::model::workspace::{BytesAnswer, ListAnswer, ToolOutcome};

use crate::sandbox::files::{Place, WORKSPACE};
use crate::sandbox::input::Input;
use crate::sandbox::job::{Answer, Work};

/// What is said of a path that only the image has.
fn out_of_sight(path: &str) -> Option<String> {
    let plain = Place { root: WORKSPACE.into() }.resolve(path);
    let seen = plain.starts_with(WORKSPACE) || plain.starts_with("/tmp");
    (!seen).then(|| {
        format!(
            "There is no file {}: this tool sees /workspace and /tmp; use bash for the image's own files.",
            plain.display()
        )
    })
}

/// The answer to work on a path that only the image has.
pub(super) fn refusal(work: &Work) -> Option<Answer> {
    Some(match work {
        Work::Tool(input) => {
            let (code, path) = match input {
                Input::Write { path, .. } => ("sandbox.write_failed", path.as_str()),
                Input::Read { path, .. } | Input::Edit { path, .. } => ("sandbox.not_found", path.as_str()),
                Input::Grep { path, .. } => ("sandbox.grep_failed", path.as_deref()?),
                Input::Glob { path, .. } => ("sandbox.not_found", path.as_deref()?),
                Input::Bash { .. } => return None,
            };
            Answer::Tool(ToolOutcome::failed(code, out_of_sight(path)?))
        }
        Work::List(path, _) => {
            out_of_sight(path)?;
            Answer::List(ListAnswer::Missing { path: path.clone() })
        }
        Work::Bytes(path, _) => {
            out_of_sight(path)?;
            Answer::Bytes(BytesAnswer::Missing { path: path.clone() })
        }
        Work::Probe | Work::Command(_) => return None,
    })
}
