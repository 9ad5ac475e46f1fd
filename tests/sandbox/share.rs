//! A command takes no more than its share, and leaves nothing behind; the same in every backend that keeps apart.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nylorun::sandbox::backend::HOST_UID;
use nylorun::sandbox::choice::Kind;
use nylorun::sandbox::control::Over;
use nylorun::sandbox::folders;
use nylorun::sandbox::job::{ByKernel, Cage, Ground, Job, Limits, Work};
use nylorun::sandbox::run::{End, Runner};
use nylorun_actors::model::workspace::{Removal, Tool, ToolOutcome};
use nylorun_actors::ports::workspaces::WorkspaceManager as _;
use serde_json::json;

use super::figures::{Host, alive, children, gone, groups, resident};
use super::support::{Spaces, for_each_backend, program};

fn said(output: &nylorun_actors::model::Json) -> &str {
    output["stderr"].as_str().unwrap()
}

async fn a_fork_bomb_is_bounded_and_ends_with_its_time(kind: Kind) {
    let spaces = Spaces::with(kind, Limits { processes: 64, ..Limits::default() });
    spaces.says("s", "true").await;
    let (before, began) = (Host::now(), Instant::now());
    let mark = format!("bomb-{}", std::process::id());
    let bomb =
        json!({"command": format!("b() {{ b | b & }}; b 2>/dev/null; sleep 60 # {mark}"), "timeout": 2});
    let call = tokio::spawn(spaces.start("s", Tool::Bash, bomb));
    let mut most = 0;
    while !call.is_finished() {
        most = most.max(alive(&mark));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let ToolOutcome::Completed { output } = call.await.unwrap().unwrap() else { panic!() };
    // Where a watcher counts it may be killed before.
    assert!(output["timedOut"] == true || output["exitCode"] == 137, "{output}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert!(most <= 80, "{most} at once");
    gone(&mark);
    assert_eq!(Host::now(), before);
    assert_eq!(spaces.says("s", "echo fine").await, "fine");
}

async fn memory_is_limited_for_all_processes_together(kind: Kind) {
    let mut spaces = Spaces::new(kind);
    spaces.spec = json!({"resources": {"cpus": 1, "memory": "128MiB"}});
    let mark = format!("hog-{}", std::process::id());
    let one = spaces.bash("s", &format!("perl -e '$x = \"a\" x (400 << 20); sleep 5 # {mark}'")).await;
    assert_ne!(one["exitCode"], 0, "{one}");
    // None of them is over the limit, all of them are.
    let hog = format!("perl -e '$x = \"a\" x (40 << 20); sleep 3; print \"whole\\n\" # {mark}'");
    let many = spaces.bash("s", &format!("for n in 1 2 3 4 5 6; do {hog} & done; wait")).await;
    let whole = many["stdout"].as_str().unwrap().lines().count();
    assert!(whole < 6, "{many}");
    assert!(said(&many).contains("memory"), "{many}");
    gone(&mark);
    if kind != Kind::Docker {
        // A container has a share of all CPUs instead.
        assert_eq!(spaces.says("s", "nproc").await, "1");
    }
    assert_eq!(spaces.says("s", "echo fine").await, "fine");
}

async fn the_disk_of_a_workspace_is_limited(kind: Kind) {
    let spaces = Spaces::with(kind, Limits { disk_bytes: 20 << 20, ..Limits::default() });
    let one = spaces.bash("s", "head -c 200M /dev/zero > one").await;
    assert_ne!(one["exitCode"], 0, "one file: {one}");
    spaces.says("s", "rm -f one").await;
    // Each of them is small; a pause lets a watcher look.
    let fill = "n=0; while head -c 1M /dev/zero > f$n; do n=$((n+1)); sleep 0.005; done";
    let many = spaces.bash("s", fill).await;
    assert_eq!(many["exitCode"], 137, "{many}");
    assert!(said(&many).contains("20 MiB on disk"), "{many}");
    let folder = spaces.folder("s");
    let used =
        || std::fs::read_dir(&folder).unwrap().flatten().map(|e| e.metadata().unwrap().len()).sum::<u64>();
    assert!(used() < 250 << 20, "{}", used());
    // A full workspace says so, takes nothing more from commands or tools, and can be emptied.
    let full = spaces.bash("s", "head -c 2M /dev/zero > more; echo tried").await;
    assert!(said(&full).contains("full"), "{full}");
    assert!(std::fs::metadata(folder.join("more")).map_or(0, |meta| meta.len()) < 1 << 20);
    match spaces.call("s", Tool::Write, json!({"path": "w", "content": "x"})).await.unwrap() {
        ToolOutcome::Failed { code, message } => {
            assert!(code == "sandbox.write_failed" && message.contains("20 MiB"))
        }
        other => panic!("{other:?}"),
    }
    spaces.says("s", "rm -f *").await;
    spaces.output("s", Tool::Write, json!({"path": "w", "content": "x"})).await;
    assert_eq!(spaces.bash("s", "echo y > w").await["stderr"], "", "it is not full any more");
    // The temporary folder counts, and so does what is deleted and still open.
    let tmp = spaces
        .bash("s", "n=0; while head -c 1M /dev/zero > \"$TMPDIR/$n\"; do n=$((n+1)); sleep 0.005; done")
        .await;
    assert_eq!(tmp["exitCode"], 137, "{tmp}");
    spaces.says("s", "rm -f \"$TMPDIR\"/*; true").await;
    let hidden = "for n in $(seq 30); do eval \"exec {fd}>hidden\"; rm hidden; head -c 2M /dev/zero >&$fd; done; sleep 20";
    let hidden = spaces.bash("s", hidden).await;
    assert_eq!(hidden["exitCode"], 137, "{hidden}");
}

async fn the_number_of_files_is_limited(kind: Kind) {
    let spaces = Spaces::with(kind, Limits { inodes: 500, ..Limits::default() });
    let output = spaces.bash("s", "n=0; while : > f$n; do n=$((n+1)); sleep 0.001; done").await;
    assert_eq!(output["exitCode"], 137, "{output}");
    assert!(said(&output).contains("500 files"), "{output}");
    assert!(std::fs::read_dir(spaces.folder("s")).unwrap().count() < 50_000);
    spaces.says("s", "find . -type f -delete").await;
    assert_eq!(spaces.bash("s", "echo y > w").await["stderr"], "");
}

async fn a_flood_of_a_gigabyte_takes_no_memory(kind: Kind) {
    let spaces = Spaces::new(kind);
    spaces.says("s", "true").await;
    let before = resident();
    let output =
        spaces.output("s", Tool::Bash, json!({"command": "head -c 1G /dev/zero", "timeout": 300})).await;
    assert_eq!((&output["exitCode"], &output["truncated"]), (&json!(0), &json!(true)));
    let grown = resident().saturating_sub(before);
    assert!(grown < 48 << 20, "{grown} bytes more");
}

async fn no_daemon_or_zombie_is_left_behind(kind: Kind) {
    let spaces = Spaces::new(kind);
    spaces.says("s", "true").await;
    let before = Host::now();
    let seconds = 100_000 + std::process::id();
    let mark = format!("sleep\0{seconds}");
    for command in [
        format!("sleep {seconds} &"),
        format!("setsid sleep {seconds} & disown"),
        format!("(setsid nohup sleep {seconds} >/dev/null 2>&1 </dev/null &)"),
        format!(
            "perl -MPOSIX -e 'for (1..20) {{ fork or do {{ setsid; fork and _exit 0; exec \"sleep\", {seconds} }} }} wait'; sleep 0.2"
        ),
        format!("bash -c 'trap \"\" TERM HUP INT; sleep {seconds} & exec sleep {seconds}' & sleep 0.1"),
        // Orphans that have ended and that nobody has waited for.
        "for n in $(seq 30); do (sleep 0.01 &) ; done; sleep 0.2".to_owned(),
    ] {
        let began = Instant::now();
        spaces.bash("s", &command).await;
        assert!(began.elapsed() < Duration::from_secs(5), "{command}");
        assert_eq!(alive(&mark), 0, "{command}");
        assert_eq!(Host::now(), before, "{command}");
    }
    // What is killed with its time, or with its caller, leaves nothing either.
    let late = json!({"command": format!("setsid sleep {seconds} & sleep {seconds}"), "timeout": 0.3});
    assert_eq!(spaces.output("s", Tool::Bash, late.clone()).await["timedOut"], true);
    let given_up = tokio::spawn(spaces.start("s", Tool::Bash, json!({"command": late["command"]})));
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(alive(&mark) >= 1);
    given_up.abort();
    gone(&mark);
    spaces.says("s", "true").await;
    assert_eq!(Host::now(), before);
}

async fn two_hundred_workspaces_leave_nothing(kind: Kind) {
    if kind == Kind::Docker {
        // In `docker.rs`, some at a time: a container takes a while to come and go.
        return;
    }
    let spaces = Spaces::new(kind);
    spaces.says("first", "true").await;
    let before = Host::now();
    for n in 0..200 {
        let session = format!("s{n}");
        assert_eq!(spaces.says(&session, "echo hi > file; cat file").await, "hi");
        if n % 20 == 19 {
            spaces.manager.remove(Removal::everything()).await.unwrap();
        }
    }
    assert_eq!(Host::now(), before);
    spaces.manager.close(None).await;
    assert!(groups(std::process::id()).is_empty());
    let left = std::fs::read_dir(spaces.dir.path().join("sandboxes")).unwrap().flatten();
    assert_eq!(left.filter(|entry| entry.path().is_dir()).count(), 0);
}

async fn where_the_kernel_does_not_limit_a_watcher_does(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    folders::make(&dir.path().join("space")).unwrap();
    let cage = if kind == Kind::Namespaces { Cage::Namespaces } else { Cage::Landlock };
    let ground = Ground { cage, root: dir.path().to_owned(), host_uid: HOST_UID, groups: Vec::new() };
    let runner = Runner::new(program(), ground);
    let run = async |command: &str, limits: Limits, seconds: u64| {
        let job = Job {
            folder: "space".to_owned(),
            limits,
            kernel: ByKernel::default(),
            hosts: nylorun::gates::egress::allow::Allow::default(),
            work: Work::Command(command.to_owned()),
        };
        let (_never, sign) = tokio::sync::watch::channel(false);
        runner
            .command(
                &job,
                None,
                Duration::from_secs(seconds),
                sign,
                None,
                &nylorun::gates::egress::Egress::default(),
            )
            .await
            .unwrap()
    };
    let mark = format!("watched-{}", std::process::id());
    let limits = Limits { memory_bytes: 128 << 20, processes: 30, ..Limits::default() };
    let hog = format!("perl -e '$x = \"a\" x (40 << 20); sleep 20 # {mark}'");
    let ran = run(&format!("for n in 1 2 3 4 5 6; do {hog} & done; wait"), limits, 60).await;
    assert_eq!(ran.end, End::Over(Over::Memory(128 << 20)), "{}", ran.stderr.text().0);
    gone(&mark);
    let began = Instant::now();
    let bomb = format!("b() {{ b | b & }}; b 2>/dev/null; sleep 60 # {mark}");
    let bomb = run(&bomb, limits, 2);
    let (mut most, mut bomb) = (0, std::pin::pin!(bomb));
    let ran = loop {
        tokio::select! {
            ran = &mut bomb => break ran,
            () = tokio::time::sleep(Duration::from_millis(20)) => most = most.max(alive(&mark)),
        }
    };
    assert!(matches!(ran.end, End::TimedOut | End::Over(Over::Processes(30))), "{:?}", ran.end);
    assert!(most <= 45 && began.elapsed() < Duration::from_secs(20), "{most} at once");
    gone(&mark);
    assert_eq!(run("exit 3", limits, 10).await.end, End::Exit(3));
}

/// What helpers are copied from may be ended by anybody who may: the system when it is short of memory, a person.
async fn a_stem_that_is_killed_is_started_again(kind: Kind) {
    let spaces = Spaces::new(kind);
    spaces.says("s", "echo kept > file").await;
    let runs =
        tokio::spawn(spaces.start("s", Tool::Bash, json!({"command": "touch begun; sleep 1; echo whole"})));
    while !spaces.folder("s").join("begun").exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for stem in children(std::process::id(), "__sandbox") {
        kill(Pid::from_raw(stem), Signal::SIGKILL).unwrap();
    }
    // What runs goes on.
    let ToolOutcome::Completed { output } = runs.await.unwrap().unwrap() else { panic!() };
    assert_eq!(output["stdout"], "whole\n");
    assert_eq!(spaces.says("s", "cat file").await, "kept");
    if kind != Kind::Docker {
        // What waited for work has gone with the one that was killed.
        helpers_come_to(&spaces, WAITING).await;
    }
}

/// A stem, and the two processes of each of the two cages that were begun and wait for their work.
const WAITING: usize = 5;

async fn helpers_come_to(spaces: &Spaces, wanted: usize) {
    let (root, until) = (spaces.dir.path().display().to_string(), Instant::now() + Duration::from_secs(5));
    while alive(&root) != wanted {
        assert!(Instant::now() < until, "{} helpers", alive(&root));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The same for those that wait: which of them has its turn is not seen from here.
async fn a_cage_that_waits_and_is_killed_is_no_loss(kind: Kind) {
    if kind == Kind::Docker {
        // Its commands have no cage of ours.
        return;
    }
    let spaces = Spaces::new(kind);
    assert_eq!(spaces.says("s", "echo begun").await, "begun");
    let root = spaces.dir.path().display().to_string();
    let stem = children(std::process::id(), &root);
    assert_eq!(stem.len(), 1);
    let waiting = || children(u32::try_from(stem[0]).unwrap(), &root);
    for which in [&[0][..], &[1], &[0, 1]] {
        helpers_come_to(&spaces, WAITING).await;
        let keepers = waiting();
        for n in which {
            kill(Pid::from_raw(keepers[*n]), Signal::SIGKILL).unwrap();
        }
        assert_eq!(spaces.says("s", "echo on").await, "on", "without {which:?}");
        assert_eq!(spaces.says("s", "echo and on").await, "and on", "without {which:?}");
    }
    helpers_come_to(&spaces, WAITING).await;
}

/// Two cages wait for work; who finds them taken waits for the next.
async fn many_commands_at_once_each_have_a_cage_of_their_own(kind: Kind) {
    if kind == Kind::Docker {
        // Its commands have no cage of ours.
        return;
    }
    let spaces = Spaces::new(kind);
    let many = (0..40).map(|n| {
        let session = format!("s{n}");
        let command = json!({"command": format!("echo {n} > own; sleep 0.05; cat own; ls | wc -l")});
        let call = spaces.start(&session, Tool::Bash, command);
        async move { (n, call.await.unwrap()) }
    });
    for (n, outcome) in futures_util::future::join_all(many).await {
        let ToolOutcome::Completed { output } = outcome else { panic!("{outcome:?}") };
        assert_eq!(output["stdout"], format!("{n}\n1\n"), "{output}");
    }
    helpers_come_to(&spaces, WAITING).await;
    spaces.manager.close(None).await;
    drop(spaces.manager);
    let root = spaces.dir.path().display().to_string();
    gone(&root);
}

/// A cage is begun before it is known for what; what it has begun with may be gone then.
async fn a_cage_that_was_begun_in_a_folder_that_is_no_more_is_begun_again(kind: Kind) {
    if kind == Kind::Docker {
        // Its commands have no cage of ours.
        return;
    }
    let spaces = Spaces::new(kind);
    spaces.says("s", "echo old > file").await;
    spaces.manager.remove(Removal::everything()).await.unwrap();
    let root = spaces.dir.path().join("sandboxes");
    std::fs::remove_dir_all(&root).unwrap();
    assert_eq!(spaces.says("s", "ls | wc -l; echo new > file; cat file").await, "0\nnew");
    assert_eq!(spaces.output("s", Tool::Read, json!({"path": "file"})).await, "1\tnew");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&root).unwrap().permissions());
    let helpers = if kind == Kind::Namespaces && nix::unistd::Uid::effective().is_root() { 0o010 } else { 0 };
    assert_eq!(mode & 0o777, 0o700 | helpers, "it is nobody else's: {mode:o}");
}

/// The real program, killed while it runs commands.
async fn kill_9_of_the_process_leaves_nothing_behind(kind: Kind) {
    if kind == Kind::Docker {
        // In `docker.rs`: a container outlives its process, until the next one removes it.
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let seconds = 200_000 + std::process::id();
    let mark = format!("sleep\0{seconds}");
    let bench = |command: &str, runs: &str| {
        let mut bench = std::process::Command::new(program());
        bench.args([
            "bench",
            "sandbox",
            "--backend",
            kind.name(),
            "--runs",
            runs,
            "--command",
            command,
            "--root",
        ]);
        bench.arg(dir.path()).stdout(std::process::Stdio::null());
        bench
    };
    let mut process = bench(&format!("setsid sleep {seconds} & sleep {seconds}"), "1").spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    while alive(&mark) < 2 {
        assert!(Instant::now() < until && process.try_wait().unwrap().is_none(), "it runs nothing");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let pid = process.id();
    process.kill().unwrap();
    process.wait().unwrap();
    gone(&mark);
    // The last of its helpers removes what the kernel keeps, and what was ready for others, before it goes.
    gone(&dir.path().display().to_string());
    assert_eq!(groups(pid), Vec::<std::path::PathBuf>::new());
    let ready = || {
        let all = std::fs::read_dir(dir.path().join(kind.name())).unwrap().flatten();
        all.map(|entry| entry.file_name())
            .filter(|name| name.as_encoded_bytes().starts_with(b"."))
            .collect::<Vec<_>>()
    };
    assert_eq!(ready(), Vec::<std::ffi::OsString>::new());
    assert!(bench("true", "1").status().unwrap().success());
    assert_eq!(ready(), Vec::<std::ffi::OsString>::new());
    // All of it at once: then it is the next process's.
    let mut process = bench(&format!("sleep {seconds}"), "1").spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    while alive(&mark) < 1 {
        assert!(Instant::now() < until && process.try_wait().unwrap().is_none(), "it runs nothing");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let pid = process.id();
    for stem in children(pid, "__sandbox") {
        kill(Pid::from_raw(stem), Signal::SIGKILL).unwrap();
    }
    process.kill().unwrap();
    process.wait().unwrap();
    gone(&dir.path().display().to_string());
    assert!(bench("true", "1").status().unwrap().success());
    assert_eq!(groups(pid), Vec::<std::path::PathBuf>::new());
    assert_eq!(ready(), Vec::<std::ffi::OsString>::new());
}

for_each_backend! {
    apart:
    a_fork_bomb_is_bounded_and_ends_with_its_time
    memory_is_limited_for_all_processes_together
    the_disk_of_a_workspace_is_limited
    the_number_of_files_is_limited
    a_flood_of_a_gigabyte_takes_no_memory
    no_daemon_or_zombie_is_left_behind
    two_hundred_workspaces_leave_nothing
    where_the_kernel_does_not_limit_a_watcher_does
    a_stem_that_is_killed_is_started_again
    a_cage_that_waits_and_is_killed_is_no_loss
    kill_9_of_the_process_leaves_nothing_behind
    many_commands_at_once_each_have_a_cage_of_their_own
    a_cage_that_was_begun_in_a_folder_that_is_no_more_is_begun_again
}
