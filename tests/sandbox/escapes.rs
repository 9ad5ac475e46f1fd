//! What a command in a sandbox must not reach: files, processes, environment, network, kernel; the same in every backend
//! that keeps apart.

use std::fs;
use std::io::Read as _;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command};

use nix::unistd::Uid;
use nylorun::sandbox::backend::HOST_UID;
use nylorun::sandbox::choice::Kind;
use nylorun_actors::model::workspace::{Tool, ToolOutcome};
use serde_json::json;

use super::support::{Spaces, for_each_backend};

/// A sandbox beside a folder of the host that everybody may read and write, so that nothing but the cage protects it.
fn open_host(kind: Kind) -> Spaces {
    let spaces = Spaces::new(kind);
    let dir = spaces.dir.path();
    fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(dir.join("secret"), "the host's secret").unwrap();
    fs::set_permissions(dir.join("secret"), fs::Permissions::from_mode(0o666)).unwrap();
    spaces
}

/// A process of the host under the user that commands are, as a neighbour in another workspace would be.
struct Neighbour(Child);

impl Neighbour {
    fn start() -> Self {
        let mut command = Command::new("sleep");
        command.arg("300").env("SECRET_OF_A_NEIGHBOUR", "seen");
        if Uid::effective().is_root() {
            command.uid(HOST_UID).gid(HOST_UID);
        }
        Self(command.spawn().unwrap())
    }

    fn lives(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs Perl in a sandbox: every system has it, and it makes any system call.
pub async fn perl(spaces: &Spaces, script: &str) -> String {
    assert!(!script.contains('\''));
    let output = spaces.bash("s", &format!("perl -e '{script}'")).await;
    format!("{}{}", output["stdout"].as_str().unwrap(), output["stderr"].as_str().unwrap())
}

/// Makes system calls; the numbers of those that did not come back with EPERM or ENOSYS, each with what it came back with.
async fn refused(spaces: &Spaces, calls: &[[u64; 6]]) -> String {
    let made = calls.iter().map(|[number, a, b, c, d, e]| {
        format!(
            "$r = syscall({number}, {a}, {b}, {c}, {d}, {e}, 0); print \"{number}: \", $r < 0 ? $!+0 : \"made\", \"; \" \
             unless $r < 0 && ($! == 1 || $! == 38); "
        )
    });
    perl(spaces, &made.collect::<String>()).await
}

/// Makes system calls; the numbers of those that were not refused.
async fn calls(spaces: &Spaces, calls: &[[u32; 6]]) -> String {
    let made = calls.iter().map(|[number, a, b, c, d, e]| {
        format!("print \"{number} \" if syscall({number}, {a}, {b}, {c}, {d}, {e}, 0) >= 0; ")
    });
    perl(spaces, &made.collect::<String>()).await
}

async fn the_hosts_files_are_not_read(kind: Kind) {
    let spaces = open_host(kind);
    let dir = spaces.dir.path().display().to_string();
    let own = std::process::id();
    // A home of the Runtime, as it is, but open to all.
    let home = spaces.dir.path().join("home");
    fs::create_dir(&home).unwrap();
    for name in ["nylorun.db", "kek", "credentials.json"] {
        fs::write(home.join(name), "a secret of the Runtime").unwrap();
    }
    spaces.says("other", "echo theirs > file").await;
    let theirs = spaces.folder("other").join("file").display().to_string();
    for path in [
        format!("{dir}/secret"),
        dir.clone(),
        format!("{dir}/sandboxes"),
        format!("{dir}/sandboxes/records.json"),
        theirs,
        format!("{dir}/home"),
        format!("{dir}/home/nylorun.db"),
        format!("{dir}/home/kek"),
        format!("{dir}/home/credentials.json"),
        "/etc/shadow".into(),
        "/etc/ssh".into(),
        "/root/.bashrc".into(),
        "/home/user".into(),
        "/sys/kernel".into(),
        "/sys/fs/cgroup".into(),
        "/var/log".into(),
        "/boot".into(),
        "/run".into(),
        "/dev/sda".into(),
        "/dev/mem".into(),
        "/dev/kmsg".into(),
        "/dev/tty".into(),
        format!("/proc/{own}/environ"),
        format!("/proc/{own}/cmdline"),
        format!("/proc/{own}/maps"),
        format!("/proc/{own}/mem"),
        format!("/proc/{own}/fd"),
        format!("/proc/{own}/root/etc/shadow"),
        "/proc/kcore".into(),
    ] {
        if kind == Kind::Docker && path == "/sys/fs/cgroup" {
            // A container sees the groups of its own, and nothing above them.
            continue;
        }
        let look = format!(
            "if [ -d {path} ]; then [ -n \"$(ls -A {path}/)\" ]; else [ -n \"$(head -c 10 {path})\" ]; fi"
        );
        let output = spaces.bash("s", &look).await;
        assert_ne!(output["exitCode"], 0, "{path}: {output}");
        let read = spaces.call("s", Tool::Read, json!({"path": path})).await.unwrap();
        assert!(matches!(read, ToolOutcome::Failed { .. }), "{path}: {read:?}");
        let found =
            spaces.call("s", Tool::Grep, json!({"path": path, "pattern": "secret|theirs"})).await.unwrap();
        let found = format!("{found:?}");
        assert!(!found.contains(":1:"), "{path}: {found}");
    }
}

async fn nothing_of_the_host_is_changed(kind: Kind) {
    let spaces = open_host(kind);
    let dir = spaces.dir.path().display().to_string();
    let mode = || fs::metadata(spaces.dir.path().join("secret")).unwrap().mode();
    let before = mode();
    for command in [
        "touch /usr/x",
        "touch /etc/x",
        "touch /x",
        "rm -f /bin/sh",
        "mkdir /dev/x",
        "mkdir /dev/shm/../x",
        "echo 1 > /proc/sys/kernel/panic",
        "echo b > /proc/sysrq-trigger",
        "echo '|/workspace/x' > /proc/sys/kernel/core_pattern",
        "echo '|/workspace/x' > /proc/sys/kernel/modprobe",
        "echo -1000 > /proc/self/oom_score_adj",
        "ulimit -Hc 1",
        "ulimit -n 1000000",
        "nice -n -5 true && [ \"$(nice -n -5 nice)\" -lt 0 ]",
        "chrt -f 50 true",
        "for f in /sys/fs/cgroup/release_agent /sys/fs/cgroup/*/release_agent /sys/fs/cgroup/notify_on_release \
         /sys/fs/cgroup/*/notify_on_release /sys/fs/cgroup/*/memory.limit_in_bytes /sys/fs/cgroup/memory.max \
         /sys/fs/cgroup/*/*/cgroup.procs; do echo 1 > $f && exit 0; done 2>/dev/null; exit 1",
        "mkdir /sys/fs/cgroup/pids/x",
        "echo $$ > /sys/fs/cgroup/pids/cgroup.procs",
        &format!("echo x > {dir}/secret"),
        &format!("echo x >> {dir}/secret"),
        &format!("truncate -s 0 {dir}/secret"),
        &format!("rm {dir}/secret"),
        &format!("mv {dir}/secret moved"),
        &format!("touch {dir}/new"),
        &format!("mkdir {dir}/folder"),
        &format!("ln -s /etc {dir}/link"),
        &format!("ln {dir}/secret linked"),
        &format!("chmod 000 {dir}/secret"),
        &format!("chown 0 {dir}/secret"),
    ] {
        let output = spaces.bash("s", command).await;
        assert_ne!(output["exitCode"], 0, "{command}: {output}");
    }
    let written =
        spaces.call("s", Tool::Write, json!({"path": format!("{dir}/new"), "content": "x"})).await.unwrap();
    let edit = json!({"path": format!("{dir}/secret"), "old_string": "host", "new_string": "x"});
    let edited = spaces.call("s", Tool::Edit, edit).await.unwrap();
    // In a system of its own such a path is as good as any, and is gone with the workspace.
    assert!(kind != Kind::Landlock || matches!(written, ToolOutcome::Failed { .. }), "{written:?}");
    assert!(matches!(edited, ToolOutcome::Failed { .. }), "{edited:?}");
    let names = || fs::read_dir(spaces.dir.path()).unwrap().flatten().map(|entry| entry.file_name());
    assert_eq!(names().count(), 2, "{:?}", names().collect::<Vec<_>>());
    assert_eq!(fs::read_to_string(spaces.dir.path().join("secret")).unwrap(), "the host's secret");
    assert_eq!(mode(), before);
}

async fn a_link_out_of_the_workspace_leads_nowhere(kind: Kind) {
    let spaces = open_host(kind);
    spaces.says("s", "true").await;
    let secret = spaces.dir.path().join("secret");
    symlink(&secret, spaces.folder("s").join("link")).unwrap();
    symlink(spaces.dir.path(), spaces.folder("s").join("dir")).unwrap();
    symlink("/proc/self/root", spaces.folder("s").join("root")).unwrap();
    for (tool, input) in [
        (Tool::Read, json!({"path": "link"})),
        (Tool::Read, json!({"path": "dir/secret"})),
        (Tool::Read, json!({"path": format!("root{}", secret.display())})),
        (Tool::Edit, json!({"path": "link", "old_string": "host", "new_string": "x"})),
        (Tool::Grep, json!({"pattern": "secret", "path": "dir"})),
    ] {
        let outcome = spaces.call("s", tool, input).await.unwrap();
        // A search that may not look says so, or finds nothing.
        let none = matches!(&outcome, ToolOutcome::Completed { output } if *output == "No matches.");
        assert!(none || matches!(outcome, ToolOutcome::Failed { .. }), "{outcome:?}");
    }
    let _ = spaces.call("s", Tool::Write, json!({"path": "link", "content": "overwritten"})).await.unwrap();
    let _ = spaces.bash("s", "echo x > link; echo x > dir/secret; cp -r dir copy; cat link copy/*").await;
    assert_eq!(fs::read_to_string(&secret).unwrap(), "the host's secret");
    // A second name of a file of the system would be a way to change it, had it been made.
    assert_ne!(spaces.bash("s", "ln /usr/bin/env env").await["exitCode"], 0);
    // A link that is swapped while it is looked at leads nowhere either: the kernel looks once, inside.
    let swap = "for n in $(seq 300); do ln -sfn \"$1\" swap; rm -f swap; echo mine > swap; cat swap; rm -f swap; done";
    let output = spaces.bash("s", &format!("set -- {}; {swap}", secret.display())).await;
    assert!(!output["stdout"].as_str().unwrap().contains("host's"), "{output}");
}

async fn no_descriptor_of_the_host_is_open(kind: Kind) {
    let spaces = Spaces::new(kind);
    let open = "opendir(D, \"/dev/fd\") or exit; print join \" \", sort grep { !/^\\./ } readdir D";
    let listed = perl(&spaces, open).await;
    // The listing's own is among them, if `/proc` may be listed at all.
    assert!(["0 1 2 3", "0 1 2 3 4", ""].contains(&listed.as_str()), "{listed}");
    let probe = "for my $fd (3..200) { print \"$fd \" if open(my $d, \"<&=\", $fd) && -e $d }";
    assert_eq!(perl(&spaces, probe).await, "");
    assert_eq!(spaces.says("s", "cd /; cd ../../..; ls -d secret sandboxes 2>/dev/null; pwd").await, "/");
}

async fn the_hosts_processes_are_neither_seen_nor_touched(kind: Kind) {
    let spaces = Spaces::new(kind);
    let mut neighbour = Neighbour::start();
    let pids = [std::process::id(), std::os::unix::process::parent_id(), neighbour.0.id()];
    for pid in pids {
        for signal in ["9", "STOP", "0"] {
            let output = spaces.bash("s", &format!("kill -{signal} {pid}")).await;
            assert_ne!(output["exitCode"], 0, "{signal} to {pid}: {output}");
        }
        // ptrace(ATTACH and SEIZE), kcmp.
        let made =
            calls(&spaces, &[[101, 16, pid, 0, 0, 0], [101, 0x4206, pid, 0, 0, 0], [312, 1, pid, 0, 0, 0]])
                .await;
        assert_eq!(made, "", "{pid}");
        // migrate_pages, move_pages.
        let made = calls(&spaces, &[[256, pid, 0, 0, 0, 0], [279, pid, 0, 0, 0, 0]]).await;
        assert_eq!(made, "", "{pid}");
        // pidfd_getfd of a pidfd; prlimit.
        let script = format!(
            "my $fd = syscall(434, {pid}, 0, 0, 0, 0, 0); print \"fd \" if $fd >= 0 && syscall(438, $fd, 0, 0, 0, 0, 0) >= 0; \
             my $l = pack(\"QQ\", 1, 1); print \"limit \" if syscall(302, {pid}, 7, $l, 0, 0, 0) == 0"
        );
        assert_eq!(perl(&spaces, &script).await, "", "{pid}");
    }
    spaces.bash("s", "kill -9 -1").await;
    spaces.bash("s", "kill -9 0").await;
    assert!(neighbour.lives());
    assert!(
        !spaces
            .says("s", "ps aux 2>&1; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>&1 | tr '\\0' ' '; true")
            .await
            .contains("NEIGHBOUR")
    );
    let seen = spaces.says("s", "ls /proc 2>/dev/null | grep -cE '^[0-9]+$' || true").await;
    assert!(seen.parse::<u32>().unwrap() < 12, "{seen} processes");
    assert_ne!(spaces.says("s", "id -u").await, "0");
    // prctl(PR_GET_NO_NEW_PRIVS), prctl(PR_GET_SECCOMP)
    assert_eq!(perl(&spaces, "print syscall(157, 39, 0, 0, 0, 0), syscall(157, 21, 0, 0, 0, 0)").await, "12");
    if kind == Kind::Namespaces {
        assert_eq!(
            spaces.says("s", "id -u; hostname; grep CapEff /proc/self/status").await,
            "1000\nsandbox\nCapEff:\t0000000000000000"
        );
    }
}

async fn there_is_no_network_but_its_own(kind: Kind) {
    let spaces = open_host(kind);
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let path = spaces.dir.path().join("socket");
    let file = UnixListener::bind(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    let name = format!("nylorun-test-{}", std::process::id());
    let abstract_name = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    tcp.set_nonblocking(true).unwrap();
    udp.set_nonblocking(true).unwrap();
    file.set_nonblocking(true).unwrap();
    abstract_name.set_nonblocking(true).unwrap();
    let (tcp_port, udp_port) = (tcp.local_addr().unwrap().port(), udp.local_addr().unwrap().port());
    for host in ["127.0.0.1", "10.0.0.1", "169.254.169.254", "1.1.1.1"] {
        let output =
            spaces.bash("s", &format!("timeout 5 bash -c 'exec 3<>/dev/tcp/{host}/{tcp_port}'")).await;
        assert_ne!(output["exitCode"], 0, "{host}");
        spaces.bash("s", &format!("echo hi > /dev/udp/{host}/{udp_port}")).await;
    }
    let connect = format!(
        "use Socket; socket(S, AF_UNIX, SOCK_STREAM, 0) && connect(S, sockaddr_un(\"{}\")) and print \"file \"; \
         socket(A, AF_UNIX, SOCK_STREAM, 0) && connect(A, pack(\"S a*\", AF_UNIX, \"\\0{name}\")) and print \"abstract \"; \
         print \"over\"",
        path.display()
    );
    assert_eq!(perl(&spaces, &connect).await, "over");
    // TCP by another name, data with the first packet, a raw socket, packets, the machine's host, Bluetooth.
    for family in [[2, 1, 262], [2, 3, 1], [17, 3, 768], [40, 1, 0], [31, 3, 1], [38, 5, 0]] {
        let made = calls(&spaces, &[[41, family[0], family[1], family[2], 0, 0]]).await;
        // Where there is a network of its own it may be used.
        let own = kind != Kind::Landlock && family == [2, 1, 262];
        assert!(made.is_empty() || own, "{family:?}");
    }
    let fast = format!(
        "use Socket; socket(S, AF_INET, SOCK_STREAM, 0) && send(S, \"x\", 0x20000000, sockaddr_in({tcp_port}, inet_aton(\"127.0.0.1\"))); print \"over\""
    );
    assert_eq!(perl(&spaces, &fast).await, "over");
    assert!(tcp.accept().is_err(), "nobody came");
    assert!(udp.recv(&mut [0; 8]).is_err(), "nothing came");
    assert!(file.accept().is_err() && abstract_name.accept().is_err(), "nobody came by a name");
    if kind == Kind::Namespaces {
        let devices = spaces.says("s", "cut -d: -f1 /proc/net/dev | tail -n +3 | tr -d ' '").await;
        assert_eq!(devices, "lo");
        let python = "import socket; s = socket.socket(); s.bind((\"127.0.0.1\", 0)); s.listen(); c = socket.create_connection(s.getsockname()); print(\"ok\")";
        let script = format!("command -v python3 >/dev/null || {{ echo ok; exit; }}; python3 -c '{python}'");
        assert_eq!(spaces.says("s", &script).await, "ok");
    }
    // Programs may still speak to their children.
    let pair = "use Socket; socketpair(A, B, AF_UNIX, SOCK_STREAM, 0) or die; syswrite A, \"ok\"; sysread B, my $x, 2; print $x";
    assert_eq!(perl(&spaces, pair).await, "ok");
}

async fn ways_into_the_kernel_are_refused(kind: Kind) {
    let spaces = Spaces::new(kind);
    for command in [
        "mount -t tmpfs x /workspace",
        "mount -o remount,rw /",
        "umount -l /proc",
        "unshare -U true",
        "unshare -r true",
        "unshare -m true",
        "nsenter -t 1 -m true",
        "chroot / true",
        "dmesg",
        "swapon /workspace",
        "mknod device b 8 0",
        "modprobe x",
        "sysctl -w kernel.panic=1",
    ] {
        assert_ne!(spaces.bash("s", command).await["exitCode"], 0, "{command}");
    }
    let refused_calls = [
        // bpf, perf_event_open, userfaultfd; add_key, request_key, keyctl; io_uring.
        [321, 0, 0, 0, 0, 0],
        [298, 0, 0, 0, 0, 0],
        [323, 0, 0, 0, 0, 0],
        [248, 0, 0, 0, 0, 0],
        [249, 0, 0, 0, 0, 0],
        [250, 0, 0, 0, 0, 0],
        [425, 1, 0, 0, 0, 0],
        [426, 0, 0, 0, 0, 0],
        [427, 0, 0, 0, 0, 0],
        // name_to_handle_at, open_by_handle_at, fanotify_init.
        [303, 0, 0, 0, 0, 0],
        [304, 0, 0, 0, 0, 0],
        [300, 0, 0, 0, 0, 0],
        // kexec, modules, reboot, swap, accounting, quotas, the kernel's log, hanging up, personality.
        [246, 0, 0, 0, 0, 0],
        [320, 0, 0, 0, 0, 0],
        [175, 0, 0, 0, 0, 0],
        [313, 0, 0, 0, 0, 0],
        [176, 0, 0, 0, 0, 0],
        [169, 0, 0, 0, 0, 0],
        [167, 0, 0, 0, 0, 0],
        [163, 0, 0, 0, 0, 0],
        [179, 0, 0, 0, 0, 0],
        [103, 2, 0, 0, 0, 0],
        [153, 0, 0, 0, 0, 0],
        [135, 0, 0, 0, 0, 0],
        // Mounts, old and new; other roots; other namespaces.
        [165, 0, 0, 0, 0, 0],
        [166, 0, 0, 0, 0, 0],
        [155, 0, 0, 0, 0, 0],
        [161, 0, 0, 0, 0, 0],
        [428, 0, 0, 0, 0, 0],
        [429, 0, 0, 0, 0, 0],
        [430, 0, 0, 0, 0, 0],
        [432, 0, 0, 0, 0, 0],
        [442, 0, 0, 0, 0, 0],
        [308, 0, 0, 0, 0, 0],
        [272, 0, 0, 0, 0, 0],
        [435, 0, 0, 0, 0, 0],
        // Keystrokes for whoever has a terminal: TIOCSTI, and the same with bits that the kernel does not look at.
        [16, 0, 0x5412, 0, 0, 0],
        [16, 0, 0x1_0000_5412, 0, 0, 0],
    ];
    assert_eq!(refused(&spaces, &refused_calls).await, "");
    // clone() with each kind of namespace, alone and with bits above those that the kernel looks at.
    let flags =
        [0x1000_0000, 0x0002_0000, 0x2000_0000, 0x4000_0000, 0x0800_0000, 0x0400_0000, 0x0200_0000_u64];
    let clones: Vec<_> = flags.iter().map(|flag| [56, *flag, 0, 0, 0, 0]).collect();
    assert_eq!(refused(&spaces, &clones).await, "");
    // `getpid` of the kind of call with short pointers does not exist, or ends the process.
    let short = perl(&spaces, "print \"made\" if syscall(0x40000027, 0, 0, 0, 0, 0, 0) >= 0").await;
    assert!(!short.contains("made"), "{short}");
    // What is not refused still works: threads and children come by calls that a filter looks at.
    let python = "import threading, subprocess, socket; t = threading.Thread(target=print, args=(\"thread\",)); t.start(); \
                  t.join(); print(subprocess.check_output([\"echo\", \"child\"]).decode().strip())";
    let script = format!(
        "command -v python3 >/dev/null || {{ printf \"thread\\nchild\\n\"; exit; }}; python3 -c '{python}'"
    );
    assert_eq!(spaces.says("s", &script).await, "thread\nchild");
}

async fn a_program_of_root_does_not_make_root(kind: Kind) {
    let spaces = Spaces::new(kind);
    spaces.says("s", "echo x > file; cp /usr/bin/id id; true").await;
    let (file, id) = (spaces.folder("s").join("file"), spaces.folder("s").join("id"));
    if Uid::effective().is_root() {
        assert_eq!(fs::metadata(&file).unwrap().uid(), HOST_UID);
        // As bad as it can be: root has put one of its programs there.
        std::os::unix::fs::chown(&id, Some(0), Some(0)).unwrap();
        fs::set_permissions(&id, fs::Permissions::from_mode(0o6755)).unwrap();
    }
    let own = spaces.says("s", "id -u").await;
    assert_eq!(spaces.says("s", "./id -u").await, own);
    assert_ne!(own, "0");
    assert_ne!(spaces.bash("s", "su -c id </dev/null").await["exitCode"], 0);
    let mut text = String::new();
    fs::File::open(&file).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "x\n");
}

async fn another_workspace_is_out_of_reach(kind: Kind) {
    let spaces = Spaces::new(kind);
    spaces.says("b", "echo theirs > file").await;
    let folder = spaces.folder("b");
    let (file, key) = (folder.join("file"), folder.parent().unwrap().to_owned());
    for path in [file.as_path(), folder.as_path(), key.as_path(), Path::new("/tmp")] {
        let output = spaces.bash("a", &format!("grep -r theirs {}", path.display())).await;
        assert_ne!(output["exitCode"], 0, "{}: {output}", path.display());
    }
    assert_eq!(fs::read_to_string(file).unwrap(), "theirs\n");
    // Not even while a command runs in it.
    let waits = tokio::spawn(spaces.start("b", Tool::Bash, json!({"command": "sleep 2; echo whole"})));
    for _ in 0..10 {
        spaces.bash("a", "kill -9 -1; pkill -9 sleep; killall -9 sleep").await;
    }
    let ToolOutcome::Completed { output } = waits.await.unwrap().unwrap() else { panic!() };
    assert_eq!(output["stdout"], "whole\n");
}

for_each_backend! {
    apart:
    the_hosts_files_are_not_read
    nothing_of_the_host_is_changed
    a_link_out_of_the_workspace_leads_nowhere
    no_descriptor_of_the_host_is_open
    the_hosts_processes_are_neither_seen_nor_touched
    there_is_no_network_but_its_own
    ways_into_the_kernel_are_refused
    a_program_of_root_does_not_make_root
    another_workspace_is_out_of_reach
}
