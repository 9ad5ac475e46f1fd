//! The documents for who changes the code name tests and files that exist.

// A test that panics has failed.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

const PAGES: [&str; 2] = ["ARCHITECTURE.md", "docs/fencing.md"];

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// What stands in back-quotes on a page, outside of code blocks.
fn quoted(page: &str) -> Vec<String> {
    let text = read(page);
    let prose: String = text.split("```").step_by(2).collect();
    prose.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn sources(folder: &Path, out: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn every_test_that_a_page_names_exists() {
    let mut all = String::new();
    for folder in ["actors/src", "actors/tests", "src", "tests"] {
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut all);
    }
    // The name of a test is a sentence; a shorter word in back-quotes is something else.
    let is_test = |word: &String| {
        word.matches('_').count() >= 3
            && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    for page in PAGES {
        let names: Vec<String> = quoted(page).into_iter().filter(is_test).collect();
        assert!(names.len() > 20, "{page} names too few tests: {names:?}");
        for name in names {
            assert!(all.contains(&format!("fn {name}(")), "{page} names {name}, and there is no such test");
        }
    }
}

#[test]
fn every_file_that_a_page_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tops = ["actors/", "src/", "tests/", "docs/", "migrations/"];
    for page in PAGES {
        let is_path =
            |word: &String| tops.iter().any(|top| word.starts_with(top)) && !word.contains(['<', '*', ' ']);
        for path in quoted(page).into_iter().filter(is_path) {
            let path = path.split("::").next().unwrap();
            assert!(root.join(path).exists(), "{page} names {path}, and there is no such file");
        }
    }
}
