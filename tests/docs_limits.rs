//! `docs/limits.md` says what the program holds to.

// A test that panics has failed.
#![allow(clippy::unwrap_used)]

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/limits.md");

#[test]
fn the_page_of_limits_is_made_from_the_programs_own_constants() {
    let made = nylorun::limits::page();
    if std::env::var_os("NYLORUN_UPDATE_DOCS").is_some() {
        std::fs::write(PAGE, &made).unwrap();
    }
    let kept = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert!(
        kept == made,
        "docs/limits.md is old: NYLORUN_UPDATE_DOCS=1 cargo nextest run --workspace docs_limits"
    );
}
