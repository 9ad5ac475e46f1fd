//! The output document of a segment's end (spec: harness-api, section 13.1).

use std::sync::Arc;

use nylorun_actors::model::Json;
use nylorun_actors::model::ids::RunId;
use nylorun_actors::model::turn::{OutputStatus, Thrown, TurnOutput};

use crate::engine::agent::{Ended, SegmentEnd};

/// What core is told of a segment's end.
pub(super) fn of(run: RunId, end: SegmentEnd) -> TurnOutput {
    let bare = TurnOutput::of(run);
    match end {
        SegmentEnd::Suspended { effect_ids, uncertain } => TurnOutput {
            status: Some(if uncertain { OutputStatus::Uncertain } else { OutputStatus::Waiting }),
            effect_ids: Some(effect_ids),
            ..bare
        },
        SegmentEnd::Ended(ended) => {
            let Ended { status, state, output, pending, error, edits } = *ended;
            // A state has text keys only, so it always has a JSON form.
            let state = serde_json::to_value(state).unwrap_or(Json::Null);
            TurnOutput {
                status: Some(status),
                state: Some(Arc::new(state)),
                output,
                pending,
                error,
                transcript: Some(edits),
                ..bare
            }
        }
        SegmentEnd::Thrown(thrown) => TurnOutput { thrown: Some(thrown), ..bare },
        // The run is released before it comes to an output; core reads this code as the same loss.
        SegmentEnd::Lost(kind) => {
            let thrown =
                Thrown { code: Some("ownership_lost".to_owned()), message: kind.as_str().to_owned() };
            TurnOutput { thrown: Some(thrown), ..bare }
        }
    }
}
