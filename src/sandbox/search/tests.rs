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

#[test]
fn braces_that_count_nothing_are_characters_as_in_extended_expressions() {
    let source = "fn main() {\n  aa{2}\n}\ntype T struct{}\nlet x = {a, b};\n";
    let (_dir, place) = place(&[("f", source)]);
    let lines = |pattern: &str| {
        let found = text(grep(&place, &search(pattern)));
        found
            .lines()
            .map(|line| line.split(':').nth(1).unwrap_or("-").to_owned())
            .collect::<Vec<_>>()
            .join(" ")
    };
    for (pattern, found) in [
        ("main.. {", "1"),
        ("struct{}", "4"),
        ("{", "1 2 4 5"),
        ("^{|{$", "1"),
        ("a{2}", "2"),
        ("a{2}{", "2"),
        ("^ +a{,2}[{]", "2"),
        ("= {a, b}", "5"),
        ("[{]a", "5"),
        ("[^]{]{2}$|zz{", "2 5"),
        (r"\{a", "5"),
        (r"\p{Lu} struct{", "4"),
        ("main\nstruct", "1 4"),
        ("struct{\n", "4"),
    ] {
        assert_eq!(lines(pattern), found, "{pattern}");
    }
    for bad in ["(", "a{2,1}", "[", "*"] {
        assert_eq!(code(grep(&place, &search(bad))), "sandbox.grep_failed", "{bad}");
    }
}

#[test]
fn what_cannot_be_searched_is_told_and_a_filter_with_a_slash_means_the_path() {
    let (dir, place) = place(&[("src/a.rs", "x"), ("src/deep/b.rs", "x"), ("c.rs", "x")]);
    nix::unistd::mkfifo(&dir.path().join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_eq!(
        grep(&place, &Search { path: Some("pipe"), ..search("x") }),
        failed("sandbox.grep_failed", "pipe is no regular file and no directory.".into())
    );
    let only = |glob: &str| text(grep(&place, &Search { glob: Some(glob), ..search("x") }));
    assert_eq!(only("src/*.rs"), "./src/a.rs:1:x");
    assert_eq!(only("./src/**"), "./src/a.rs:1:x\n./src/deep/b.rs:1:x");
    assert_eq!(only("**/b.rs"), "./src/deep/b.rs:1:x");
    assert_eq!(only("b.rs"), "./src/deep/b.rs:1:x", "without a slash it is held against names");
    symlink("src", dir.path().join("link")).unwrap();
    let link = Search { path: Some("link"), ..search("x") };
    assert_eq!(
        text(grep(&place, &link)),
        "link/a.rs:1:x\nlink/deep/b.rs:1:x",
        "one that was named is followed"
    );
    assert_eq!(only("*").lines().count(), 3, "others are not");
}

#[test]
fn a_pattern_may_begin_where_the_search_does_and_only_the_inside_of_git_is_left_out() {
    let (_dir, place) =
        place(&[("a/x.rs", ""), ("a/.git/y.rs", ""), (".git", "gitdir: elsewhere"), ("a.rs", "")]);
    let found = |pattern: &str, path: Option<&str>| text(glob(&place, pattern, path));
    assert_eq!(found("./a/*.rs", None), "/workspace/a/x.rs");
    assert_eq!(found("./*.rs", Some("a")), "/workspace/a/x.rs");
    assert_eq!(found(".git", None), "/workspace/.git");
    assert_eq!(found("**", Some("a")), "/workspace/a/x.rs");
}

#[test]
fn a_line_that_is_too_long_for_a_search_leaves_out_its_file_and_no_other() {
    let (dir, place) = place(&[("small", "needle\n")]);
    let long = "y".repeat(SEARCH_LINE_BYTES * 2);
    fs::write(dir.path().join("long"), &long).unwrap();
    assert_eq!(text(grep(&place, &search("needle"))), "./small:1:needle");
    let said = grep(&place, &search("nothing"));
    assert_eq!(said, failed("sandbox.grep_failed", "./long: a line has more than 16 MiB".into()));
}
