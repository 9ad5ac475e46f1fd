//! Every code that the program names has a page in `docs/errors/`, and every page has a code.
//!
//! Codes that are an enum or a list are read from it. Those that are words in the source, the engine's and the
//! commands', are read from the source.

// A test that panics has failed.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use nylorun::api::{CAUSES, ErrorCode};
use nylorun::engine::model::call::FailureCode;
use nylorun_actors::ports::engine::ApiCode;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn pages() -> BTreeSet<String> {
    let names = fs::read_dir(root().join("docs/errors")).unwrap().map(|entry| entry.unwrap().file_name());
    let names = names.filter_map(|name| name.into_string().unwrap().strip_suffix(".md").map(str::to_owned));
    names.filter(|name| name != "README" && name != "exit-codes").collect()
}

fn sources(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

/// The text of a folder's modules without their tests.
fn code_of(folder: &str) -> Vec<String> {
    let mut files = Vec::new();
    sources(&root().join(folder), &mut files);
    files.retain(|path| !path.components().any(|part| part.as_os_str().to_str().unwrap().contains("tests")));
    assert!(!files.is_empty(), "{folder} has no source");
    files.iter().map(|path| until_tests(&fs::read_to_string(path).unwrap())).collect()
}

fn until_tests(text: &str) -> String {
    text.split("#[cfg(test)]\nmod tests").next().unwrap().to_owned()
}

/// String literals of a text that are words like `tool.unknown` of one of these families.
fn words(text: &str, families: &[&str]) -> BTreeSet<String> {
    let is_word = |word: &str| {
        let Some((family, rest)) = word.split_once('.') else { return false };
        let plain = |c: char| c.is_ascii_lowercase() || c == '-' || c == '_';
        families.contains(&family) && !rest.is_empty() && rest.chars().all(plain)
    };
    text.split('"').skip(1).step_by(2).filter(|word| is_word(word)).map(str::to_owned).collect()
}

const FAMILIES: &[&str] =
    &["execution", "configuration", "delegation", "dynamics", "sandbox", "output", "model", "tool"];

fn engine_codes() -> BTreeSet<String> {
    let mut codes = BTreeSet::new();
    for text in code_of("src/engine/agent").iter().chain(&code_of("src/engine/run")) {
        codes.extend(words(text, FAMILIES));
    }
    codes.extend(FailureCode::ALL.iter().map(|code| format!("model.{}", code.as_str())));
    let outcome = fs::read_to_string(root().join("actors/src/model/outcome.rs")).unwrap();
    codes.extend(words(&until_tests(&outcome), FAMILIES));
    codes
}

/// Second arguments of `Fault::new(…, "code", …)`, and the codes that errors have of their own.
fn command_codes() -> BTreeSet<String> {
    let mut codes = BTreeSet::new();
    let is_code = |c: char| c.is_ascii_lowercase() || c == '-' || c == '_';
    for text in ["src/cli", "src/host", "src/harness"].iter().flat_map(|folder| code_of(folder)) {
        for call in text.split("Fault::new(").skip(1) {
            let Some((_, second)) = call.split_once(',') else { continue };
            let Some(literal) = second.trim_start().strip_prefix('"') else { continue };
            codes.insert(literal.split('"').next().unwrap().to_owned());
        }
        for call in text.split("refuse(").skip(1) {
            let Some(literal) = call.trim_start().strip_prefix('"') else { continue };
            codes.insert(literal.split('"').next().unwrap().to_owned());
        }
    }
    for file in ["src/cli/fault.rs", "src/host/home.rs"] {
        let text = until_tests(&fs::read_to_string(root().join(file)).unwrap());
        for arm in text.lines().filter(|line| line.contains("{ .. } => \"") || line.contains("NoHome => \""))
        {
            codes.insert(arm.split('"').nth(1).unwrap().to_owned());
        }
    }
    codes.retain(|code| code.chars().all(is_code));
    codes
}

fn all_codes() -> BTreeSet<String> {
    let mut codes: BTreeSet<String> = ErrorCode::ALL.iter().map(|code| code.as_str().to_owned()).collect();
    codes.extend(ApiCode::ALL.iter().map(|code| code.as_str().to_owned()));
    codes.extend(CAUSES.iter().map(|&code| code.to_owned()));
    codes.extend(engine_codes());
    codes.extend(command_codes());
    codes
}

#[test]
fn every_code_has_a_page_and_every_page_a_code() {
    let (codes, pages) = (all_codes(), pages());
    let without: Vec<_> = codes.difference(&pages).collect();
    assert!(without.is_empty(), "codes without a page in docs/errors: {without:?}");
    let stale: Vec<_> = pages.difference(&codes).collect();
    assert!(stale.is_empty(), "pages of docs/errors that no code names: {stale:?}");
}

#[test]
fn codes_that_are_words_in_the_source_are_found() {
    // So that a change of how they are written does not leave the test above with nothing to compare.
    let (engine, command) = (engine_codes(), command_codes());
    for code in
        ["execution.failed", "execution.invalid-state", "output.invalid", "tool.unknown", "model.auth"]
    {
        assert!(engine.contains(code), "{code}: {engine:?}");
    }
    for code in ["port-in-use", "home-in-use", "database-in-use", "setting-unknown", "no-home"] {
        assert!(command.contains(code), "{code}: {command:?}");
    }
}

#[test]
fn every_page_names_its_code_says_what_to_do_and_is_in_the_index() {
    let index = fs::read_to_string(root().join("docs/errors/README.md")).unwrap();
    for code in pages() {
        let page = fs::read_to_string(root().join(format!("docs/errors/{code}.md"))).unwrap();
        assert!(page.starts_with(&format!("# `{code}`\n")), "{code}");
        assert!(page.contains("\n## What it means\n") && page.contains("\n## What to do\n\n- "), "{code}");
        assert!(index.contains(&format!("| [`{code}`]({code}.md) |")), "{code} is not in the index");
    }
}

#[test]
fn every_exit_code_is_on_the_page_of_exit_codes() {
    let page = fs::read_to_string(root().join("docs/errors/exit-codes.md")).unwrap();
    let source = fs::read_to_string(root().join("src/cli/fault.rs")).unwrap();
    let numbers: Vec<&str> = source
        .lines()
        .filter_map(|line| line.trim().strip_prefix("pub const ")?.split_once(": u8 = "))
        .map(|(_, number)| number.trim_end_matches(';'))
        .collect();
    assert!(numbers.len() >= 10, "{numbers:?}");
    for number in numbers {
        assert!(page.contains(&format!("\n| {number} |")), "exit code {number} has no line");
    }
}
