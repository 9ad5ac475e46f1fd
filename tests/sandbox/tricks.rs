//! Ways round a cage that are not the obvious ones: what is left lying for others, what no process seems to take, what
//! belongs to the helpers themselves; the same in every backend that keeps apart.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::Command;
use std::time::{Duration, Instant};

use nylorun::sandbox::choice::Kind;
use nylorun::sandbox::job::Limits;
use nylorun_actors::model::workspace::{
    BytesAnswer, BytesOf, FilesOf, ListAnswer, Removal, Tool, ToolOutcome, WorkspaceBytes, WorkspaceList,
};
use nylorun_actors::ports::workspaces::WorkspaceManager as _;
use serde_json::json;

use super::escapes::perl;
use super::support::{Spaces, for_each_backend, of};

/// What a look of ours may take, whatever lies there: it opens nothing that could keep it waiting.
const AT_ONCE: Duration = Duration::from_secs(8);

async fn pipes_sockets_and_loops_in_the_workspace_hold_no_tool_up(kind: Kind) {
    let spaces = Spaces::new(kind);
    spaces
        .says(
            "s",
            "mkfifo pipe; ln -s pipe to-pipe; ln -s loop loop; ln -s . round; ln -s /proc/self/fd/0 input; ln -s /dev/zero zero; \
             ln -s /proc/self/mem mem; ln -s /proc/self/environ environ; mkdir dir; mkfifo dir/pipe; echo text > dir/file",
        )
        .await;
    if kind != Kind::Landlock {
        // Somebody who connects would be given descriptors, or wait for an answer.
        let listen =
            "use Socket; socket(S, AF_UNIX, SOCK_STREAM, 0); bind(S, sockaddr_un(\"sock\")) or print $!";
        assert_eq!(perl(&spaces, listen).await, "");
    }
    let began = Instant::now();
    for path in
        ["pipe", "to-pipe", "loop", "round", "input", "zero", "mem", "sock", "dir/pipe", "round/round/pipe"]
    {
        for (tool, input) in [
            (Tool::Read, json!({"path": path})),
            (Tool::Edit, json!({"path": path, "old_string": "a", "new_string": "b"})),
        ] {
            let outcome = spaces.call("s", tool, input).await.unwrap();
            assert!(matches!(outcome, ToolOutcome::Failed { .. }), "{path}: {outcome:?}");
        }
        let bytes = spaces.manager.bytes(bytes_of(path), spaces.heard.clone()).await.unwrap();
        assert!(!matches!(bytes, BytesAnswer::Read { .. }), "{path}: {bytes:?}");
    }
    // Without sockets it would be a new file.
    let sock = if kind == Kind::Landlock { "pipe" } else { "sock" };
    for path in ["pipe", sock, "dir/pipe"] {
        let _ = spaces.call("s", Tool::Write, json!({"path": path, "content": "x"})).await.unwrap();
        assert_ne!(spaces.bash("s", &format!("test -f {path} && grep -q host {path}")).await["exitCode"], 0);
    }
    for path in [".", "pipe", "dir", "round", "to-pipe"] {
        let _ = spaces.call("s", Tool::Grep, json!({"pattern": "text", "path": path})).await.unwrap();
        let _ = spaces.call("s", Tool::Glob, json!({"pattern": "*", "path": path})).await.unwrap();
    }
    assert_eq!(spaces.output("s", Tool::Grep, json!({"pattern": "text"})).await, "./dir/file:1:text");
    assert_eq!(spaces.output("s", Tool::Glob, json!({"pattern": "**/*"})).await, "/workspace/dir/file");
    let list = spaces.manager.list(list_of(), spaces.heard.clone()).await.unwrap();
    let ListAnswer::Listed { listing, .. } = list else { panic!("{list:?}") };
    assert_eq!(listing.entries.iter().map(|entry| entry.path.as_str()).collect::<Vec<_>>(), ["dir/file"]);
    // Each of them takes some milliseconds; a pipe that was opened would take until somebody writes.
    assert!(began.elapsed() < AT_ONCE * 3, "{:?}", began.elapsed());
    // The environment of a helper is its own, which is empty.
    if let ToolOutcome::Completed { output } =
        spaces.call("s", Tool::Read, json!({"path": "environ"})).await.unwrap()
    {
        assert!(!output.to_string().contains("CARGO"), "{output}");
    }
    spaces.manager.remove(Removal::everything()).await.unwrap();
    assert!(!spaces.folder("s").exists());
}

fn bytes_of(path: &str) -> WorkspaceBytes {
    let bytes = BytesOf { path: path.into(), max_bytes: 1_000 };
    WorkspaceBytes { session: of("s"), spec: json!({}), bytes }
}

fn list_of() -> WorkspaceList {
    let list = FilesOf { dir: "/workspace".into(), max_entries: 100 };
    WorkspaceList { session: of("s"), spec: json!({}), list }
}

/// The helper in a cage is the same user there as the command that it waits for.
async fn the_process_that_waits_for_a_command_is_closed_to_it(kind: Kind) {
    let spaces = Spaces::new(kind);
    spaces.says("s", "true").await;
    let program = super::support::program();
    let before = fs::metadata(&program).map(|meta| (meta.len(), meta.mtime(), meta.mtime_nsec())).unwrap();
    for file in
        ["mem", "environ", "maps", "exe", "cwd", "root", "fd", "fdinfo", "auxv", "stack", "io", "map_files"]
    {
        // In a container the parent is a shell of the same user, that has nothing.
        let both: &[&str] = if kind == Kind::Docker { &["1"] } else { &["1", "$PPID"] };
        for pid in both {
            let look = format!("p=/proc/{pid}/{file}; if [ -d $p/ ]; then ls $p/; else head -c 1 $p; fi");
            let output = spaces.bash("s", &look).await;
            assert!(output["exitCode"] != 0 || output["stdout"] == "", "{file} of {pid}: {output}");
        }
    }
    for command in [
        "echo x > /proc/1/exe",
        "echo x > /proc/$PPID/exe",
        "echo x > /proc/1/mem",
        "cat /proc/1/exe > /proc/1/exe",
    ] {
        assert_ne!(spaces.bash("s", command).await["exitCode"], 0, "{command}");
    }
    // ptrace(ATTACH and SEIZE) of the first process and of the parent, their descriptors, their memory.
    let script = "for my $one (PIDS) { my $pid = $one + 0; next if $pid == $$; \
                  for my $how (16, 0x4206) { print \"traced $pid \" if syscall(101, $how, $pid, 0, 0) == 0 } \
                  my $fd = syscall(434, $pid, 0); \
                  if ($fd >= 0) { for my $n (0..9) { print \"fd $n \" if syscall(438, $fd, $n, 0) >= 0 } } \
                  my $b = \"x\" x 8; my $v = pack(\"QQ\", unpack(\"Q\", pack(\"p\", $b)), 8); my $r = pack(\"QQ\", 4096, 8); \
                  print \"read $pid \" if syscall(310, $pid, $v, 1, $r, 1, 0) >= 0 }";
    // What asks is perl itself, not a shell that has become it: its parent is that of commands.
    let pids = if kind == Kind::Docker { "1" } else { "1, getppid" };
    assert_eq!(perl(&spaces, &script.replace("PIDS", pids)).await, "");
    assert_eq!(
        fs::metadata(&program).map(|meta| (meta.len(), meta.mtime(), meta.mtime_nsec())).unwrap(),
        before
    );
    assert_eq!(spaces.says("s", "echo fine").await, "fine");
}

/// Memory of the host that has a name: System V segments and queues, POSIX ones, files in memory.
async fn shared_memory_of_the_host_is_another(kind: Kind) {
    let spaces = Spaces::new(kind);
    let name = format!("/dev/shm/nylorun-test-{}-{}", std::process::id(), kind.name());
    fs::write(&name, "the host's secret").unwrap();
    fs::set_permissions(&name, fs::Permissions::from_mode(0o666)).unwrap();
    let made = Command::new("ipcmk").args(["-M", "4096", "-Q", "-S", "1", "-p", "0666"]).output();
    let ids: Vec<String> = made.map_or_else(
        |_| Vec::new(),
        |made| {
            String::from_utf8_lossy(&made.stdout)
                .lines()
                .filter_map(|line| Some(line.rsplit(' ').next()?.to_owned()))
                .collect()
        },
    );
    let output = spaces.bash("s", &format!("cat {name}; echo x > {name}")).await;
    assert!(!output["stdout"].as_str().unwrap().contains("secret"), "{output}");
    for id in &ids {
        let script = format!(
            "my $b; print \"segment \" if shmread({id}, $b, 0, 4); print \"queue \" if msgsnd({id}, pack(\"l! a*\", 1, \"x\"), 2048); \
             print \"semaphore \" if semop({id}, pack(\"s!3\", 0, 1, 2048)); print \"locked \" if syscall(31, {id}, 0, 0) == 0"
        );
        assert_eq!(perl(&spaces, &script).await, "", "{id}");
    }
    spaces.bash("s", &format!("echo x > {name}-theirs")).await;
    assert!(!fs::exists(format!("{name}-theirs")).unwrap());
    assert_eq!(fs::read_to_string(&name).unwrap(), "the host's secret");
    fs::remove_file(&name).unwrap();
    for (flag, id) in ["-m", "-q", "-s"].into_iter().zip(&ids) {
        let _ = Command::new("ipcrm").args([flag, id]).status();
    }
}

/// Memory that no process has in its own: files in memory, segments, queues.
async fn memory_that_is_no_process_s_is_limited_too(kind: Kind) {
    let limits = Limits { memory_bytes: 128 << 20, disk_bytes: 200 << 20, ..Limits::default() };
    let spaces = Spaces::with(kind, limits);
    spaces.says("s", "true").await;
    let files = "my $x = \"a\" x (1 << 20); for my $n (1..24) { my $fd = syscall(319, my $name = \"m$n\", 0); \
                 exit 1 if $fd < 0; open(my $f, \">&=\", $fd); push @all, $f; syswrite($f, $x) or exit 1 for 1..32; } \
                 print \"whole\"; sleep 5";
    let output = spaces.bash("s", &format!("perl -e '{files}'")).await;
    assert!(output["exitCode"] != 0 && output["stdout"] == "" || output["exitCode"] == 137, "{output}");
    // 24 segments of 32 MiB, each written and let go.
    let segments = "my $x = \"a\" x (32 << 20); for my $n (1..24) { my $id = shmget(0, 32 << 20, 0600 | 512); \
                    exit 1 unless defined $id; shmwrite($id, $x, 0, 32 << 20) or exit 1; } print \"whole\"";
    let output = spaces.bash("s", &format!("perl -e '{segments}'")).await;
    assert_ne!(output["stdout"], "whole", "{output}");
    // /dev/shm has an end, and is empty the next time or counts.
    let shm = spaces.bash("s", "n=0; while head -c 16M /dev/zero > /dev/shm/$n; do n=$((n+1)); [ $n -lt 30 ] || exit 0; done; exit 1").await;
    assert_ne!(shm["exitCode"], 0, "{shm}");
    assert_eq!(spaces.says("s", "rm -f /dev/shm/* 2>/dev/null; echo fine").await, "fine");
}

/// A tree that is too deep for a path hides nothing of what it has, and is removed.
async fn what_lies_deeper_than_a_path_reaches_is_counted_and_removed(kind: Kind) {
    let spaces = Spaces::with(kind, Limits { disk_bytes: 20 << 20, ..Limits::default() });
    let deep = "n=$(printf 'd%.0s' {1..200}); for i in {1..40}; do mkdir $n && cd $n || exit 3; done; \
                n=0; while head -c 1M /dev/zero > f$n; do n=$((n+1)); [ $n -lt 200 ] || exit 0; sleep 0.02; done; exit 4";
    let output = spaces.bash("s", deep).await;
    assert_eq!(output["exitCode"], 137, "{output}");
    let full = spaces.bash("s", "head -c 2M /dev/zero > more; echo tried").await;
    assert!(full["stderr"].as_str().unwrap().contains("full"), "{full}");
    spaces.manager.remove(Removal::everything()).await.unwrap();
    assert!(!spaces.folder("s").parent().unwrap().exists());
    spaces.says("s", "test -z \"$(ls)\"").await;
}

/// A program with a mark that a command has made is no way for others either, and nothing of the host gets one.
async fn no_mark_of_a_program_gives_a_right(kind: Kind) {
    let spaces = Spaces::new(kind);
    let own = spaces.says("s", "id -u").await;
    spaces.bash("s", "cp /bin/sh sh; chmod 6755 sh; setfattr -n security.capability -v 0sAQAAAgAgAAAAAAAAAAAAAAAAAAA= sh").await;
    assert_eq!(spaces.says("s", "./sh -c 'id -u'").await, own);
    let caps = spaces.says("s", "./sh -c 'grep -E \"^Cap(Eff|Prm|Amb)\" /proc/self/status' 2>/dev/null | grep -v 0000000000000000; true").await;
    assert_eq!(caps, "");
    let file = spaces.folder("s").join("sh");
    assert_ne!(fs::metadata(&file).unwrap().uid(), 0);
    // Nobody but the Runtime and its helpers walks there, and these do not look around.
    let sandboxes = spaces.dir.path().join("sandboxes");
    let meta = fs::metadata(&sandboxes).unwrap();
    assert_eq!(meta.mode() & 0o067, 0, "{:o}", meta.mode());
    assert!(meta.mode() & 0o010 == 0 || meta.gid() == nylorun::sandbox::backend::HOST_UID);
}

for_each_backend! {
    apart:
    pipes_sockets_and_loops_in_the_workspace_hold_no_tool_up
    the_process_that_waits_for_a_command_is_closed_to_it
    shared_memory_of_the_host_is_another
    memory_that_is_no_process_s_is_limited_too
    what_lies_deeper_than_a_path_reaches_is_counted_and_removed
    no_mark_of_a_program_gives_a_right
}
