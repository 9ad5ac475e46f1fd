//! Ids that come out the same on every replay (spec: engine, section 3.3).

use std::collections::HashMap;

use nylorun_actors::model::checkpoint::Checkpoint;

/// Counters per prefix under one seed: `<prefix>_<seed>_<n>`, n from 1.
#[derive(Clone, Debug)]
pub struct Ids {
    seed: String,
    counters: HashMap<&'static str, u32>,
}

impl Ids {
    /// The ids of a segment.
    #[must_use]
    pub fn of_segment(checkpoint: &Checkpoint) -> Self {
        Self::with_seed(format!("{}_{}", checkpoint.turn_id, checkpoint.segment))
    }

    /// Ids under a seed of its own.
    #[must_use]
    pub fn with_seed(seed: String) -> Self {
        Self { seed, counters: HashMap::new() }
    }

    /// The ids of a sub-agent that an invocation of this seed runs.
    #[must_use]
    pub fn nested(&self, invocation: &str) -> Self {
        Self::with_seed(format!("{}_{invocation}", self.seed))
    }

    /// The next id of a prefix.
    pub fn next(&mut self, prefix: &'static str) -> String {
        let n = self.counters.entry(prefix).or_insert(0);
        *n += 1;
        format!("{prefix}_{}_{n}", self.seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_count_per_prefix_from_one() {
        let mut ids = Ids::with_seed("T_0".to_owned());
        let got: Vec<_> = ["turn", "step", "invocation", "invocation", "step"].map(|p| ids.next(p)).into();
        assert_eq!(got, ["turn_T_0_1", "step_T_0_1", "invocation_T_0_1", "invocation_T_0_2", "step_T_0_2"]);
    }

    #[test]
    fn ids_of_a_sub_agent_count_anew_under_the_seed_and_the_invocation() {
        let mut ids = Ids::with_seed("T_0".to_owned());
        ids.next("turn");
        assert_eq!(ids.nested("invocation_T_0_2").next("turn"), "turn_T_0_invocation_T_0_2_1");
    }
}
