//! Exact answers of the tools on files that are not ordinary, the same in every backend (spec: sandbox, section 13).

use nylorun::sandbox::choice::Kind;
use nylorun::sandbox::limits::{EDIT_BYTES, LINE_CHARS, STREAM_CHARS};
use nylorun_actors::model::Json;
use nylorun_actors::model::workspace::{Tool, ToolOutcome};
use nylorun_actors::ports::workspaces::WorkspaceManager as _;
use serde_json::json;

use super::support::{Spaces, for_each_backend};

/// An output, or `code: message`.
async fn told(spaces: &Spaces, tool: Tool, input: Json) -> String {
    match spaces.call("s", tool, input).await.unwrap() {
        ToolOutcome::Completed { output: Json::String(text) } => text,
        ToolOutcome::Completed { output } => output.to_string(),
        ToolOutcome::Failed { code, message } => format!("{code}: {message}"),
    }
}

async fn write(spaces: &Spaces, path: &str, content: &str) {
    let written = spaces.output("s", Tool::Write, json!({"path": path, "content": content})).await;
    assert_eq!(written["bytes"], content.len());
}

async fn read(spaces: &Spaces, path: &str) -> String {
    told(spaces, Tool::Read, json!({"path": path})).await
}

async fn text_of_every_kind_comes_back_as_it_was(kind: Kind) {
    let spaces = Spaces::new(kind);
    write(&spaces, "unicode", "héllo — 日本語 🦀\nзаключение\n").await;
    assert_eq!(read(&spaces, "unicode").await, "1\théllo — 日本語 🦀\n2\tзаключение");
    assert_eq!(spaces.says("s", "cat unicode").await, "héllo — 日本語 🦀\nзаключение");
    assert_eq!(
        spaces.output("s", Tool::Grep, json!({"pattern": "日本.", "path": "unicode"})).await,
        "unicode:1:héllo — 日本語 🦀"
    );
    write(&spaces, "crlf", "a\r\nb\r\n").await;
    assert_eq!(read(&spaces, "crlf").await, "1\ta\n2\tb");
    assert_eq!(
        spaces.says("s", "od -An -c crlf | tr -d ' \\n'").await,
        "a\\r\\nb\\r\\n",
        "on disk it is as it was written"
    );
    let edit = json!({"path": "crlf", "old_string": "a\r\nb", "new_string": "c"});
    assert_eq!(spaces.output("s", Tool::Edit, edit).await["replacements"], 1);
    assert_eq!(spaces.says("s", "od -An -c crlf | tr -d ' \\n'").await, "c\\r\\n");
    write(&spaces, "nul", "a\0b").await;
    assert_eq!(spaces.says("s", "od -An -tx1 nul").await, " 61 00 62");
    write(&spaces, "empty", "").await;
    assert_eq!(read(&spaces, "empty").await, "The file /workspace/empty is empty.");
    write(&spaces, "none", "no newline").await;
    assert_eq!(read(&spaces, "none").await, "1\tno newline");
}

async fn binary_files_and_odd_bytes_do_not_break_a_tool(kind: Kind) {
    let spaces = Spaces::new(kind);
    spaces.says("s", "printf 'text\\377\\376 needle\\n' > odd; head -c 3000 /dev/urandom > random; printf 'needle\\0needle\\n' > bin").await;
    assert_eq!(read(&spaces, "odd").await, "1\ttext\u{FFFD}\u{FFFD} needle");
    assert!(read(&spaces, "random").await.starts_with(['1', ' ']));
    assert_eq!(
        told(&spaces, Tool::Grep, json!({"pattern": "needle"})).await,
        "./odd:1:text\u{FFFD}\u{FFFD} needle"
    );
    let edit = json!({"path": "odd", "old_string": "needle", "new_string": "x"});
    assert_eq!(told(&spaces, Tool::Edit, edit).await, "sandbox.error: /workspace/odd is no UTF-8 text.");
    let output = spaces.bash("s", "cat odd; cat bin >&2").await;
    assert_eq!(
        (&output["stdout"], &output["stderr"]),
        (&json!("text\u{FFFD}\u{FFFD} needle\n"), &json!("needle\0needle\n"))
    );
}

async fn long_lines_and_long_files_are_cut_where_it_is_said(kind: Kind) {
    let spaces = Spaces::new(kind);
    spaces
        .says("s", "head -c 5000000 /dev/zero | tr '\\0' x > wide; seq 1 6000 > tall; truncate -s 65M huge")
        .await;
    let wide = read(&spaces, "wide").await;
    assert_eq!(wide, format!("1\t{}…", "x".repeat(LINE_CHARS)));
    let page = told(&spaces, Tool::Read, json!({"path": "tall", "offset": 9, "limit": 3})).await;
    assert_eq!(page, " 9\t9\n10\t10\n11\t11\n… 5989 more lines; go on with offset 12");
    assert_eq!(read(&spaces, "tall").await.lines().last(), Some("… 4000 more lines; go on with offset 2001"));
    let most = told(&spaces, Tool::Read, json!({"path": "tall", "limit": 99_999})).await;
    assert_eq!(most.lines().last(), Some("… 1000 more lines; go on with offset 5001"));
    assert_eq!(told(&spaces, Tool::Read, json!({"path": "tall", "offset": 7_000})).await, "");
    let found = told(&spaces, Tool::Grep, json!({"pattern": ".", "path": "tall", "max_results": 2})).await;
    assert_eq!(found, "tall:1:1\ntall:2:2\n… more matches: narrow the search");
    let wide = told(&spaces, Tool::Grep, json!({"pattern": "x", "path": "wide"})).await;
    assert_eq!(wide.chars().count(), "wide:1:".len() + LINE_CHARS + 1);
    const { assert!(65 << 20 > EDIT_BYTES) };
    let edit = json!({"path": "huge", "old_string": "a", "new_string": "b"});
    assert_eq!(
        told(&spaces, Tool::Edit, edit).await,
        "sandbox.error: /workspace/huge is too large to be edited."
    );
    let output = spaces.bash("s", &format!("head -c {} /dev/zero | tr '\\0' y", STREAM_CHARS + 10)).await;
    let text = output["stdout"].as_str().unwrap();
    let half = "y".repeat(STREAM_CHARS / 2);
    assert_eq!(text, format!("{half}\n… 10 characters left out …\n{half}"));
    assert_eq!(output["truncated"], true);
}

async fn a_small_sandbox_edits_and_searches_what_a_large_one_does(kind: Kind) {
    let mut spaces = Spaces::new(kind);
    spaces.spec = json!({"resources": {"cpus": 1, "memory": "128MiB"}});
    let size = EDIT_BYTES - 8;
    spaces.says("s", &format!("yes 'some line' | head -c {size} > large; echo needle > small")).await;
    let edit = json!({"path": "large", "old_string": "some", "new_string": "any", "replace_all": true});
    let replaced = spaces.output("s", Tool::Edit, edit).await;
    let lines = size.div_ceil(10);
    assert_eq!(replaced["replacements"], lines);
    assert_eq!(
        spaces.says("s", "stat -c %s large; head -n 2 large").await,
        format!("{}\nany line\nany line", size - lines)
    );
    // One line of 60 MB.
    spaces.says("s", "head -c 60000000 /dev/zero | tr '\\0' y > large").await;
    assert_eq!(told(&spaces, Tool::Grep, json!({"pattern": "needle"})).await, "./small:1:needle");
    assert_eq!(
        told(&spaces, Tool::Grep, json!({"pattern": "nothing"})).await,
        "sandbox.grep_failed: ./large: a line has more than 16 MiB"
    );
    let edit = json!({"path": "large", "old_string": "y", "new_string": "yyyyyyyyyy", "replace_all": true});
    assert_eq!(
        told(&spaces, Tool::Edit, edit).await,
        "sandbox.error: /workspace/large would have 600000000 bytes, which is too large to be edited."
    );
}

async fn what_is_missing_or_no_file_is_told(kind: Kind) {
    let spaces = Spaces::new(kind);
    spaces
        .says("s", "mkdir dir; mkfifo pipe; ln -s nowhere dangling; ln -s dir/file link; echo 1 > dir/file")
        .await;
    for (path, said) in [
        ("missing", "sandbox.not_found: There is no file /workspace/missing."),
        ("dir/file/x", "sandbox.not_found: There is no file /workspace/dir/file/x."),
        ("dangling", "sandbox.not_found: There is no file /workspace/dangling."),
        ("dir", "sandbox.error: /workspace/dir is a directory."),
        ("pipe", "sandbox.error: /workspace/pipe is no regular file."),
        ("link", "1\t1"),
    ] {
        assert_eq!(read(&spaces, path).await, said);
    }
    let edit = |old: &str, new: &str, all: bool| json!({"path": "dir/file", "old_string": old, "new_string": new, "replace_all": all});
    for (input, said) in [
        (
            json!({"path": "missing", "old_string": "a", "new_string": "b"}),
            "sandbox.not_found: There is no file /workspace/missing.",
        ),
        (edit("1", "1", false), "sandbox.edit_noop: old_string and new_string are the same."),
        (edit("2", "1", false), "sandbox.edit_no_match: old_string does not occur in /workspace/dir/file."),
    ] {
        assert_eq!(told(&spaces, Tool::Edit, input).await, said);
    }
    write(&spaces, "dir/file", "aXaXa").await;
    assert!(
        told(&spaces, Tool::Edit, edit("X", "$1", false))
            .await
            .starts_with("sandbox.edit_not_unique: old_string occurs 2 times")
    );
    assert_eq!(
        told(&spaces, Tool::Edit, edit("X", "$1", true)).await,
        r#"{"path":"/workspace/dir/file","replacements":2}"#
    );
    assert_eq!(read(&spaces, "dir/file").await, "1\ta$1a$1a", "the new text is literal");
    for path in ["dir", "dir/file/below", if kind == Kind::Process { "dir" } else { "/usr/x" }] {
        let said = told(&spaces, Tool::Write, json!({"path": path, "content": "x"})).await;
        assert!(said.starts_with("sandbox.write_failed: "), "{path}: {said}");
    }
    assert_eq!(
        told(&spaces, Tool::Grep, json!({"pattern": "x", "path": "missing"})).await,
        "sandbox.grep_failed: missing does not exist."
    );
    assert!(told(&spaces, Tool::Grep, json!({"pattern": "("})).await.starts_with("sandbox.grep_failed: "));
    assert_eq!(told(&spaces, Tool::Grep, json!({"pattern": "zzz"})).await, "No matches.");
    assert_eq!(
        told(&spaces, Tool::Glob, json!({"pattern": "*", "path": "missing"})).await,
        "No files matched."
    );
    assert_eq!(
        told(&spaces, Tool::Glob, json!({"pattern": "*"})).await,
        "/workspace/dir/file",
        "regular files only"
    );
}

async fn names_may_be_anything(kind: Kind) {
    let spaces = Spaces::new(kind);
    let long = [&"日".repeat(85), &"🦀".repeat(63)];
    let names = [
        long[0],
        long[1],
        "a b",
        "-rf",
        "$(touch x)",
        "'quote\"",
        "новый",
        "a\nb",
        ".hidden",
        "deep/er/and/deeper",
    ];
    for name in names {
        write(&spaces, name, &format!("in {name}")).await;
        assert!(read(&spaces, name).await.starts_with("1\tin "), "{name:?}");
    }
    assert_eq!(spaces.says("s", "find . -type f -printf x | wc -c").await, names.len().to_string());
    assert_eq!(
        told(&spaces, Tool::Glob, json!({"pattern": "deep/**/deeper"})).await,
        "/workspace/deep/er/and/deeper"
    );
    assert_eq!(told(&spaces, Tool::Glob, json!({"pattern": ".hid*"})).await, "/workspace/.hidden");
    let long = "n".repeat(300);
    let said = told(&spaces, Tool::Write, json!({"path": long, "content": "x"})).await;
    assert!(said.starts_with("sandbox.write_failed: "), "{said}");
}

async fn paths_mean_the_workspace_however_they_are_written(kind: Kind) {
    let spaces = Spaces::new(kind);
    for path in ["a", "/workspace/b", "./c", "x/../d", "/workspace/y/../e", "/workspace/../workspace/f"] {
        write(&spaces, path, "text\n").await;
    }
    assert_eq!(spaces.says("s", "ls | tr '\\n' ' '").await, "a b c d e f");
    assert_eq!(
        told(&spaces, Tool::Grep, json!({"pattern": "text", "path": "/workspace/a"})).await,
        "/workspace/a:1:text"
    );
    assert_eq!(
        told(&spaces, Tool::Glob, json!({"pattern": "/workspace/[ab]"})).await,
        "/workspace/a\n/workspace/b"
    );
    assert_eq!(spaces.says("s", "cd \"$HOME\" && ls a && pwd | grep -c workspace").await, "a\n1");
}

async fn files_survive_a_stop_and_a_new_manager(kind: Kind) {
    use nylorun_actors::ports::Clock as _;
    let spaces = Spaces::new(kind);
    spaces
        .says(
            "s",
            "mkdir -p d; echo kept > d/file; chmod 640 d/file; ln -s d/file link; echo gone > \"$TMPDIR/t\"",
        )
        .await;
    let later = nylorun_actors::ports::clock::SystemClock.now().0 as f64 / 1_000.0 + 3_600_000.0;
    spaces.manager.sweep(Some(later), spaces.heard.clone()).await.unwrap();
    assert_eq!(spaces.says("s", "cat link; stat -c %a d/file; ls \"$TMPDIR\"").await, "kept\n640");
    let manager = super::support::manager(&spaces.dir, kind, nylorun::sandbox::job::Limits::default());
    let again = Spaces { manager, heard: std::sync::Arc::default(), ..spaces };
    assert_eq!(again.says("s", "cat link").await, "kept");
}

for_each_backend! {
    every:
    text_of_every_kind_comes_back_as_it_was
    binary_files_and_odd_bytes_do_not_break_a_tool
    long_lines_and_long_files_are_cut_where_it_is_said
    a_small_sandbox_edits_and_searches_what_a_large_one_does
    what_is_missing_or_no_file_is_told
    names_may_be_anything
    paths_mean_the_workspace_however_they_are_written
    files_survive_a_stop_and_a_new_manager
}
