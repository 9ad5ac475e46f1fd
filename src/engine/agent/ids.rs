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
}
