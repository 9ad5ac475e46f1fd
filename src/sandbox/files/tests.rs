//! The tools read, write and edit over plain directories: limits, odd files, exact outputs.

use std::os::unix::fs::symlink;
use std::time::Duration;

use nylorun_actors::model::Json;
use tempfile::TempDir;

use super::*;

fn place() -> (TempDir, Place) {
    let dir = tempfile::tempdir().unwrap();
    let place = Place { root: dir.path().to_owned() };
    (dir, place)
}

fn output(outcome: ToolOutcome) -> Json {
    match outcome {
        ToolOutcome::Completed { output } => output,
        other => panic!("{other:?}"),
    }
}

fn text(outcome: ToolOutcome) -> String {
    output(outcome).as_str().unwrap().to_owned()
}

fn code(outcome: ToolOutcome) -> String {
    match outcome {
        ToolOutcome::Failed { code, .. } => code,
        other => panic!("{other:?}"),
    }
}

#[test]
fn paths_are_the_workspaces_and_dots_collapse() {
    let place = Place { root: "/home/x/ws".into() };
    for (said, path, shown) in [
        ("a", "/home/x/ws/a", "/workspace/a"),
        ("./a/../b/.", "/home/x/ws/b", "/workspace/b"),
        ("/workspace", "/home/x/ws", "/workspace"),
        ("/workspace/a/b", "/home/x/ws/a/b", "/workspace/a/b"),
        ("/workspacex/a", "/workspacex/a", "/workspacex/a"),
        ("../../..", "/", "/"),
        ("../../../../../etc/passwd", "/etc/passwd", "/etc/passwd"),
    ] {
        let resolved = place.resolve(said);
        assert_eq!((resolved.as_path(), place.shown(&resolved).as_str()), (Path::new(path), shown), "{said}");
    }
}

#[test]
fn a_page_is_numbered_and_tells_what_is_left() {
    let (_dir, place) = place();
    let ten: String = (1..=10).map(|n| format!("line {n}\n")).collect();
    assert_eq!(output(write(&place, "d/ten", &ten)), json!({"path": "/workspace/d/ten", "bytes": 71}));
    assert_eq!(
        text(read(&place, "d/ten", 1, 3)),
        "1\tline 1\n2\tline 2\n3\tline 3\n… 7 more lines; go on with offset 4"
    );
    assert_eq!(text(read(&place, "/workspace/d/ten", 9, 5)), " 9\tline 9\n10\tline 10");
    assert_eq!(text(read(&place, "d/ten", 11, 5)), "");
    write(&place, "empty", "");
    assert!(text(read(&place, "empty", 1, 5)).contains("/workspace/empty"));
    write(&place, "long", &format!("{}\nb", "é".repeat(2_001)));
    let long = text(read(&place, "long", 1, 5));
    assert_eq!(long.lines().next().unwrap(), format!("1\t{}…", "é".repeat(2_000)));
    assert_eq!(long.lines().nth(1).unwrap(), "2\tb");
    assert_eq!(code(read(&place, "none", 1, 1)), "sandbox.not_found");
    assert_eq!(code(read(&place, "d", 1, 1)), "sandbox.error");
}

#[test]
fn an_answer_is_capped_in_all_and_says_where_to_go_on() {
    let (_dir, place) = place();
    let many: String = (0..5_000).map(|_| format!("{}\n", "x".repeat(1_000))).collect();
    write(&place, "many", &many);
    let page = text(read(&place, "many", 1, 5_000));
    assert!(page.len() < ANSWER_CHARS + 20_000, "{}", page.len());
    let last = page.lines().last().unwrap();
    assert!(last.starts_with("… ") && last.contains("offset "), "{last}");
    let next: u64 = last.rsplit(' ').next().unwrap().parse().unwrap();
    assert_eq!(page.lines().count() as u64, next);
    // One line without an end takes no memory.
    write(&place, "one", &"y".repeat(10_000_000));
    assert_eq!(text(read(&place, "one", 1, 5)).chars().count(), 2_003);
}

#[test]
fn an_edit_is_literal_unique_unless_told_and_atomic() {
    let (dir, place) = place();
    write(&place, "f", "a.c abc a.c\n");
    assert_eq!(code(edit(&place, "none", "a", "b", false)), "sandbox.not_found");
    assert_eq!(code(edit(&place, "f", "x", "x", false)), "sandbox.edit_noop");
    assert_eq!(code(edit(&place, "f", "zzz", "x", false)), "sandbox.edit_no_match");
    let twice = edit(&place, "f", "a.c", "x", false);
    assert!(
        matches!(&twice, ToolOutcome::Failed { message, .. } if message.contains("2 times")),
        "{twice:?}"
    );
    assert_eq!(code(twice), "sandbox.edit_not_unique");
    let done = json!({"path": "/workspace/f", "replacements": 2});
    assert_eq!(output(edit(&place, "f", "a.c", "$1\\0", true)), done);
    assert_eq!(fs::read_to_string(dir.path().join("f")).unwrap(), "$1\\0 abc $1\\0\n");
    write(&place, "o", "aaaa");
    assert_eq!(output(edit(&place, "o", "aa", "b", true))["replacements"], 2, "without overlaps");
    fs::write(dir.path().join("bin"), b"a\xff").unwrap();
    assert_eq!(code(edit(&place, "bin", "a", "b", false)), "sandbox.error");
    let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().ends_with(".tmp")), "{names:?}");
}

#[test]
fn a_file_keeps_its_mode_and_a_link_its_target() {
    use std::os::unix::fs::PermissionsExt as _;
    let (dir, place) = place();
    let script = dir.path().join("run");
    fs::write(&script, "old").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    symlink("run", dir.path().join("link")).unwrap();
    write(&place, "link", "new");
    assert_eq!(fs::read_to_string(&script).unwrap(), "new");
    assert_eq!(fs::metadata(&script).unwrap().permissions().mode() & 0o777, 0o755);
    assert!(fs::symlink_metadata(dir.path().join("link")).unwrap().is_symlink());
    fs::create_dir(dir.path().join("d")).unwrap();
    assert_eq!(code(write(&place, "d", "x")), "sandbox.write_failed");
    assert_eq!(code(write(&place, "run/below", "x")), "sandbox.write_failed");
}

#[test]
fn a_pipe_is_not_read() {
    let (dir, place) = place();
    nix::unistd::mkfifo(&dir.path().join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_eq!(code(read(&place, "pipe", 1, 1)), "sandbox.error");
    assert_eq!(code(edit(&place, "pipe", "a", "b", false)), "sandbox.error");
    assert_eq!(code(write(&place, "pipe", "a")), "sandbox.write_failed");
    assert!(matches!(bytes(&place, "pipe", 9), BytesAnswer::Failed { .. }));
}

#[test]
fn a_listing_has_regular_files_in_order_and_no_links() {
    let (dir, place) = place();
    for name in ["b/z", "b/a", "a", "c", ".hidden", "ignored"] {
        write(&place, &format!("out/{name}"), "123");
    }
    write(&place, "out/.gitignore", "ignored\n");
    symlink("/etc/passwd", dir.path().join("out/link")).unwrap();
    let ListAnswer::Listed { path, listing } = list(&place, "/workspace/out", 100) else { panic!() };
    assert_eq!(path, "/workspace/out");
    let names: Vec<&str> = listing.entries.iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!(names, [".gitignore", ".hidden", "a", "b/a", "b/z", "c", "ignored"]);
    assert_eq!((listing.entries[2].size, listing.truncated), (3, false));
    let ListAnswer::Listed { listing, .. } = list(&place, "out", 2) else { panic!() };
    assert_eq!((listing.entries.len(), listing.truncated), (2, true));
    symlink("out", dir.path().join("linked")).unwrap();
    for missing in ["none", "out/a", "linked"] {
        assert!(matches!(list(&place, missing, 9), ListAnswer::Missing { .. }), "{missing}");
    }
}

#[test]
fn a_name_that_is_no_text_is_in_no_listing_and_passes_for_no_other() {
    use std::os::unix::ffi::OsStrExt as _;
    let (dir, place) = place();
    write(&place, "out/a\u{fffd}", "1");
    fs::write(dir.path().join("out").join(std::ffi::OsStr::from_bytes(b"a\xff")), "22").unwrap();
    let ListAnswer::Listed { listing, .. } = list(&place, "out", 9) else { panic!() };
    let found: Vec<_> = listing.entries.iter().map(|entry| (entry.path.as_str(), entry.size)).collect();
    assert_eq!(found, [("a\u{fffd}", 1)]);
}

/// The stamp of `out/f` for whoever looks so long after it has changed.
fn stamp_after(place: &Place, time: Duration) -> Option<FileStamp> {
    let changed = stamp(&fs::metadata(place.root.join("out/f")).unwrap()).changed;
    let now = UNIX_EPOCH + Duration::from_nanos(u64::try_from(changed).unwrap()) + time;
    let ListAnswer::Listed { listing, .. } = list_at(place, "out", 9, now) else { panic!() };
    listing.entries[0].stamp
}

#[test]
fn a_file_has_a_stamp_once_it_was_left_alone_and_no_change_leaves_it_the_same() {
    let (dir, place) = place();
    let path = dir.path().join("out/f");
    write(&place, "out/f", "one");
    let (soon, later) = (Duration::from_millis(100), Duration::from_secs(4));
    assert_eq!(stamp_after(&place, soon), None, "it could change again before the clock of its files moves");
    let first = stamp_after(&place, later).unwrap();
    assert_eq!(stamp_after(&place, later * 2), Some(first));
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    let back = |file: &File| file.set_modified(modified).unwrap();
    // The coarse clock must have moved; how long that takes is what a file must be left alone for.
    let tick = || std::thread::sleep(Duration::from_millis(50));
    let mut seen = vec![first];
    let mut other = |what: &str| {
        let stamp = stamp_after(&place, later).unwrap();
        assert_eq!(stamp.modified, first.modified, "{what}");
        assert!(!seen.contains(&stamp), "{what}");
        seen.push(stamp);
    };
    tick();
    // Written over in place: as many bytes, and the time as it was.
    let file = File::options().write(true).open(&path).unwrap();
    std::io::Write::write_all(&mut &file, b"two").unwrap();
    back(&file);
    other("written in place");
    tick();
    // Another file takes its place.
    let file = File::create(dir.path().join("other")).unwrap();
    std::io::Write::write_all(&mut &file, b"six").unwrap();
    back(&file);
    fs::rename(dir.path().join("other"), &path).unwrap();
    other("replaced");
    tick();
    // Gone and there again.
    fs::remove_file(&path).unwrap();
    let file = File::create(&path).unwrap();
    std::io::Write::write_all(&mut &file, b"ten").unwrap();
    back(&file);
    other("made again");
}

#[test]
fn a_time_without_a_fraction_is_taken_for_one_of_a_coarse_clock() {
    let of = |changed| settles(&FileStamp { device: 1, inode: 1, modified: 1, changed });
    assert!(of(1_700_000_000_000_000_000) > 2_000_000_000, "some file systems count in twos of seconds");
    assert!(
        of(1_700_000_000_004_000_000) > 10_000_000,
        "others by the ticks of the kernel, a hundredth or less"
    );
}

#[test]
fn bytes_are_read_up_to_their_limit() {
    let (dir, place) = place();
    fs::write(dir.path().join("f"), [0, 255, 1]).unwrap();
    assert_eq!(bytes(&place, "f", 3), BytesAnswer::Read { path: "f".into(), base64: "AP8B".into() });
    assert!(
        matches!(bytes(&place, "f", 2), BytesAnswer::Failed { code, .. } if code == "artifact.too_large")
    );
    assert_eq!(bytes(&place, "none", 2), BytesAnswer::Missing { path: "none".into() });
}

#[test]
fn a_name_as_long_as_the_system_takes_is_written_in_any_alphabet() {
    let (_dir, place) = place();
    for name in ["n".repeat(255), "日".repeat(85), "🦀".repeat(63)] {
        assert_eq!(output(write(&place, &name, "x"))["bytes"], 1, "{name}");
        assert_eq!(text(read(&place, &name, 1, 1)), "1\tx");
        assert_eq!(output(edit(&place, &name, "x", "y", false))["replacements"], 1);
    }
    assert_eq!(code(write(&place, &"n".repeat(256), "x")), "sandbox.write_failed");
}

#[test]
fn what_a_killed_write_has_left_is_not_in_the_way_of_the_next() {
    let (dir, place) = place();
    let left = dir.path().join(format!(".nylorun-{}.tmp", std::process::id()));
    fs::write(&left, "half of").unwrap();
    assert_eq!(output(write(&place, "a", "whole"))["bytes"], 5);
    assert_eq!(fs::read_to_string(dir.path().join("a")).unwrap(), "whole");
    assert!(!left.exists());
    // A link there is not followed.
    fs::write(dir.path().join("b"), "other").unwrap();
    symlink("b", &left).unwrap();
    assert_eq!(output(write(&place, "a", "again"))["bytes"], 5);
    assert_eq!(fs::read_to_string(dir.path().join("b")).unwrap(), "other");
}

#[test]
fn a_write_follows_links_also_to_what_is_not_there_yet() {
    let (dir, place) = place();
    fs::create_dir(dir.path().join("d")).unwrap();
    for (link, to) in [("to-file", "d/new"), ("to-link", "to-file"), ("up", "d/../other"), ("deep", "e/f")] {
        symlink(to, dir.path().join(link)).unwrap();
    }
    for (link, lands) in [("to-link", "d/new"), ("up", "other"), ("deep", "e/f")] {
        let shown = format!("/workspace/{link}");
        assert_eq!(output(write(&place, link, link)), json!({"path": shown, "bytes": link.len()}));
        assert!(fs::symlink_metadata(dir.path().join(link)).unwrap().is_symlink(), "{link}");
        assert_eq!(fs::read_to_string(dir.path().join(lands)).unwrap(), link);
    }
    symlink("loop", dir.path().join("loop")).unwrap();
    assert_eq!(code(write(&place, "loop", "x")), "sandbox.write_failed");
    assert!(fs::symlink_metadata(dir.path().join("loop")).unwrap().is_symlink());
    assert_eq!(code(read(&place, "loop", 1, 1)), "sandbox.error");
}

#[test]
fn a_path_that_names_a_directory_makes_no_file() {
    let (dir, place) = place();
    assert_eq!(code(write(&place, "new/", "x")), "sandbox.write_failed");
    assert!(!dir.path().join("new").exists());
}

#[test]
fn an_edit_that_would_grow_a_file_beyond_measure_fails_and_changes_nothing() {
    let (dir, place) = place();
    let (many, long) = ("a".repeat(1_000_000), "b".repeat(100_000));
    write(&place, "f", &many);
    assert_eq!(code(edit(&place, "f", "a", &long, true)), "sandbox.error");
    assert_eq!(fs::read_to_string(dir.path().join("f")).unwrap(), many);
    assert_eq!(output(edit(&place, "f", "a", "bc", true))["replacements"], 1_000_000);
    assert_eq!(fs::read_to_string(dir.path().join("f")).unwrap(), "bc".repeat(1_000_000));
    assert_eq!(fs::metadata(dir.path().join("f")).unwrap().len(), 2_000_000);
}

#[test]
fn the_end_of_a_line_may_have_two_characters_and_an_edit_that_misses_for_it_says_so() {
    let (_dir, place) = place();
    write(&place, "f", "a\r\nb\r\r\nc\rd\r");
    assert_eq!(text(read(&place, "f", 1, 9)), "1\ta\n2\tb\r\n3\tc\rd\r");
    let said = |old: &str| match edit(&place, "f", old, "x", false) {
        ToolOutcome::Failed { code, message } => format!("{code}: {message}"),
        done => panic!("{done:?}"),
    };
    let no = "sandbox.edit_no_match: old_string does not occur in /workspace/f";
    assert_eq!(said("a\nb"), format!("{no}: its lines end with \\r\\n."));
    assert_eq!(said("a b"), format!("{no}."));
    assert_eq!(output(edit(&place, "f", "a\r\nb", "x", false))["replacements"], 1);
    // Carriage returns beyond what is kept of a line do not hide what follows them.
    write(&place, "long", &format!("ab{}cd\n", "\r".repeat(20_000)));
    assert_eq!(text(read(&place, "long", 1, 1)), format!("1\tab{}…", "\r".repeat(LINE_CHARS - 2)));
}

#[test]
fn a_file_that_is_too_large_for_an_artifact_is_not_read_for_it() {
    let (dir, place) = place();
    // Sparse: reading it whole would take its time and its memory.
    File::create(dir.path().join("f")).unwrap().set_len(1 << 40).unwrap();
    assert!(
        matches!(bytes(&place, "f", u64::MAX >> 24), BytesAnswer::Failed { code, .. } if code == "artifact.too_large")
    );
}
