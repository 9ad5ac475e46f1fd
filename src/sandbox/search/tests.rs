//! The tools grep and glob over plain directories: order, caps, links, odd names.

use std::fs;
use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

fn place(files: &[(&str, &str)]) -> (TempDir, Place) {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    let place = Place { root: dir.path().to_owned() };
    (dir, place)
}

fn text(outcome: ToolOutcome) -> String {
    match outcome {
        ToolOutcome::Completed { output } => output.as_str().unwrap().to_owned(),
        other => panic!("{other:?}"),
    }
}

fn code(outcome: ToolOutcome) -> String {
    match outcome {
        ToolOutcome::Failed { code, .. } => code,
        other => panic!("{other:?}"),
    }
}

fn search(pattern: &str) -> Search<'_> {
    Search { pattern, path: None, glob: None, ignore_case: false, most: 200 }
}

const FILES: &[(&str, &str)] = &[
    ("src/a.py", "import os\nprint(1)\n"),
    ("src/b.txt", "print(2)"),
    ("c", "Print\0x"),
    (".h", "print(3)\r\n"),
];

#[test]
fn matches_name_file_line_and_text_as_the_path_was_said() {
    let (_dir, place) = place(FILES);
    let found = text(grep(&place, &search("print")));
    assert_eq!(found, "./.h:1:print(3)\n./src/a.py:2:print(1)\n./src/b.txt:1:print(2)");
    assert_eq!(text(grep(&place, &Search { path: Some("src/"), ..search("os$") })), "src/a.py:1:import os");
    let whole = Search { path: Some("/workspace/src"), ..search("os") };
    assert_eq!(text(grep(&place, &whole)), "/workspace/src/a.py:1:import os");
    let one = Search { path: Some("src/b.txt"), glob: Some("*.py"), ..search("print") };
    assert_eq!(text(grep(&place, &one)), "src/b.txt:1:print(2)", "a file that was named itself");
    assert_eq!(
        text(grep(&place, &Search { glob: Some("*.py"), ..search("print") })),
        "./src/a.py:2:print(1)"
    );
    assert_eq!(
        text(grep(&place, &Search { ignore_case: true, glob: Some("*.py"), ..search("PRINT") })),
        "./src/a.py:2:print(1)"
    );
    assert_eq!(text(grep(&place, &search("nothing"))), "No matches.");
}

#[test]
fn a_search_that_cannot_be_made_fails_and_a_large_one_is_cut() {
    let (_dir, place) = place(FILES);
    assert_eq!(code(grep(&place, &search("("))), "sandbox.grep_failed");
    assert_eq!(code(grep(&place, &Search { path: Some("none"), ..search("x") })), "sandbox.grep_failed");
    assert_eq!(code(grep(&place, &Search { glob: Some("["), ..search("x") })), INVALID);
    let many = "x\n".repeat(300);
    let long = "y".repeat(5_000);
    let (_dir, place) = self::place(&[("many", &many), ("long", &long)]);
    let found = text(grep(&place, &search("x")));
    assert_eq!(found.lines().count(), 201);
    assert!(found.lines().last().unwrap().starts_with("… "));
    let clipped = text(grep(&place, &search("y")));
    assert_eq!(clipped.chars().count(), "./long:1:".len() + 2_001);
}

#[test]
fn a_pattern_without_a_slash_fits_names_and_one_with_it_fits_paths() {
    let (dir, place) =
        place(&[("a.py", ""), ("d/b.py", ""), ("d/e/c.py", ""), ("d/x.txt", ""), (".git/d.py", "")]);
    symlink("a.py", dir.path().join("link.py")).unwrap();
    let found = |pattern: &str, path: Option<&str>| text(glob(&place, pattern, path));
    assert_eq!(found("*.py", None), "/workspace/a.py\n/workspace/d/b.py\n/workspace/d/e/c.py");
    assert_eq!(found("d/*.py", None), "/workspace/d/b.py");
    assert_eq!(found("**/*.py", Some("d")), "/workspace/d/b.py\n/workspace/d/e/c.py");
    assert_eq!(found("/workspace/d/*.txt", None), "/workspace/d/x.txt");
    assert_eq!(found("*.rs", None), "No files matched.");
    assert_eq!(found("*", Some("none")), "No files matched.");
    assert_eq!(code(glob(&place, "[", None)), INVALID);
}

#[test]
fn at_most_500_files_are_named() {
    let (dir, place) = place(&[]);
    for n in 0..510 {
        fs::write(dir.path().join(format!("f{n:03}")), "").unwrap();
    }
    let found = text(glob(&place, "f*", None));
    assert_eq!(found.lines().count(), 501);
    assert_eq!(found.lines().last().unwrap(), "… 10 more files: narrow the pattern");
}
