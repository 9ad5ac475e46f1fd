//! Holding a run for a pending Action (spec: harness-api, section 12).

use futures_util::future::{Either, LocalBoxFuture, select};
use nylorun_actors::model::effect::Outcome;
use nylorun_actors::model::turn::{Abort, RunOptions};
use nylorun_actors::ports::engine::AbortSignal;
use tokio::time::Duration;

/// How a wait ended.
#[derive(Debug, PartialEq)]
pub enum Held {
    /// The Action's outcome came.
    Resolved(Outcome),
    /// The time was up.
    TimedOut,
    /// The run was told to stop.
    Aborted(Abort),
}

/// How long a run that has lasted `elapsed` may hold, ms: no longer than asked for, and no longer than its segment may
/// last. 0 is no wait.
#[must_use]
pub fn most_ms(options: &RunOptions, elapsed: u64) -> u64 {
    let left =
        options.yield_after.and_then(|limit| limit.ms).map_or(u64::MAX, |ms| ms.saturating_sub(elapsed));
    options.hold_ms.unwrap_or(0).min(left)
}

/// Waits for an outcome, an abort, or `most`, whichever is first.
pub async fn wait(resolved: LocalBoxFuture<'static, Outcome>, abort: &AbortSignal, most: Duration) -> Held {
    let stop = select(Box::pin(abort.fired()), Box::pin(tokio::time::sleep(most)));
    match select(resolved, stop).await {
        Either::Left((outcome, _)) => Held::Resolved(outcome),
        Either::Right((Either::Left((abort, _)), _)) => Held::Aborted(abort),
        Either::Right((Either::Right(((), _)), _)) => Held::TimedOut,
    }
}

#[cfg(test)]
mod tests {
    use nylorun_actors::model::turn::YieldAfter;

    use super::*;

    #[test]
    fn a_hold_is_no_longer_than_asked_for_and_than_the_segment_may_last() {
        let options = |hold_ms, ms| RunOptions {
            yield_after: Some(YieldAfter { steps: None, ms }),
            flow_limits: None,
            fixture_model: false,
            hold_ms,
        };
        assert_eq!(most_ms(&options(Some(300), Some(1000)), 100), 300);
        assert_eq!(most_ms(&options(Some(300), Some(1000)), 900), 100);
        assert_eq!(most_ms(&options(Some(300), Some(1000)), 1500), 0);
        assert_eq!(most_ms(&options(Some(300), None), 1500), 300);
        assert_eq!(most_ms(&options(Some(0), None), 0), 0);
        assert_eq!(most_ms(&options(None, None), 0), 0);
    }
}
