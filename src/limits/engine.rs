//! Bounds of the engine and of models.

use super::{Row, bytes, ms, row, time};
use crate::engine::agent::delegate::EVIDENCE_CHARS;
use crate::engine::agent::hooks::RETRIES;
use crate::engine::agent::projection::CHAIN_ABOVE_BYTES;
use crate::engine::model::provider::{MESSAGE_CHARS, ProviderLimits};
use crate::engine::model::script::{MAX_DELAY_MS, MAX_STEPS};
use crate::engine::run::{DEFINITIONS, cache, kit};

pub(super) fn rows() -> Vec<Row> {
    let limits = ProviderLimits::default();
    let provider = "engine/model/provider";
    vec![
        row(
            "attempts of one model call",
            limits.attempts.to_string(),
            provider,
            "the last failure stands and the turn fails with `model.<code>`",
            "fixed",
        ),
        row(
            "wait before another attempt",
            format!("{} doubling up to {}", time(limits.base_delay), time(limits.max_delay)),
            provider,
            "a provider that asks for more gets no further attempt",
            "fixed",
        ),
        row(
            "one model call with its attempts",
            time(limits.request_timeout),
            provider,
            "it fails as `timeout`",
            "fixed",
        ),
        row(
            "silence of a provider",
            time(limits.idle_timeout),
            provider,
            "the attempt fails as `timeout`",
            "fixed",
        ),
        row(
            "reaching a provider",
            time(limits.connect_timeout),
            provider,
            "the attempt fails as `transient`",
            "fixed",
        ),
        row(
            "one streamed answer",
            bytes(limits.answer_bytes),
            provider,
            "it fails as `invalid_output`",
            "fixed",
        ),
        row(
            "time between two previews",
            time(limits.preview_interval),
            provider,
            "pieces that come sooner travel together",
            "fixed",
        ),
        row(
            "text of a provider's error",
            format!("{MESSAGE_CHARS} characters"),
            provider,
            "the rest is cut",
            "fixed",
        ),
        row(
            "prompt that is hashed whole",
            bytes(CHAIN_ABOVE_BYTES),
            "engine/agent/projection",
            "in the process a longer one is hashed as a chain (docs/adr/0008)",
            "fixed",
        ),
        row(
            "answers that the hooks of one turn send back",
            RETRIES.to_string(),
            "engine/agent/hooks",
            "the turn fails with `dynamics.exhausted`",
            "fixed",
        ),
        row(
            "last text of a failed sub-agent that its caller reads",
            format!("{EVIDENCE_CHARS} characters"),
            "engine/agent/delegate",
            "the rest is cut",
            "fixed",
        ),
        row(
            "projected transcripts kept between runs",
            bytes(cache::CACHE_BYTES),
            "engine/run/cache",
            "the least recently used is dropped and projected again when needed",
            "fixed",
        ),
        row(
            "definitions kept ready",
            DEFINITIONS.to_string(),
            "engine/run/definitions",
            "all are dropped and read again when needed",
            "fixed",
        ),
        row(
            "fixture scripts of manifests kept ready",
            kit::MOST.to_string(),
            "engine/run/kit",
            "all are dropped and read again when needed",
            "fixed",
        ),
        row(
            "delay in a fixture script",
            ms(MAX_DELAY_MS),
            "engine/model/script",
            "the script is refused",
            "fixed",
        ),
        row(
            "steps of one list in a fixture script",
            MAX_STEPS.to_string(),
            "engine/model/script",
            "the script is refused",
            "fixed",
        ),
    ]
}
